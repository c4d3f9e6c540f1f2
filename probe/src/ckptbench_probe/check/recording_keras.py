"""Keras: the model's variables at the begin of the first batch of `fit`, and at the end of each, before the callbacks of the program."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ckptbench_probe.check.recording import RECORDER
from ckptbench_probe.harmless import harmless, say
from ckptbench_probe.process import PROCESS


def patch(module: Any) -> None:
    callbacks = module.CallbackList
    begin, end = callbacks.on_train_batch_begin, callbacks.on_train_batch_end

    @functools.wraps(begin)
    def on_train_batch_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        harmless(_begin)(self.model)
        return begin(self, *args, **kwargs)

    @functools.wraps(end)
    def on_train_batch_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        harmless(_updated)(self.model)
        return end(self, *args, **kwargs)

    callbacks.on_train_batch_begin = on_train_batch_begin
    callbacks.on_train_batch_end = on_train_batch_end


def _begin(model: Any) -> None:
    if _seen(model):
        RECORDER.begin(_tensors(model).items(), *_optimizer(model))


def _updated(model: Any) -> None:
    if _seen(model):
        RECORDER.updated(PROCESS.updates.done, _tensors(model).items(), *_optimizer(model))


def _seen(model: Any) -> bool:
    """With JAX, the variables are not those of the last batch while `fit` runs."""
    if sys.modules["keras"].backend.backend() != "jax":
        return True
    say("cannot see the state of Keras with JAX: use session() and s.step(state=...)")
    return False


def _tensors(model: Any) -> dict[str, Any]:
    """Those of the optimizer are its slots."""
    found = {variable.path: variable for variable in model.variables}
    for variable in model.optimizer.variables:
        found[f"optimizer/{variable.path}"] = variable
    return {name: variable.value for name, variable in found.items()}


def _optimizer(model: Any) -> tuple[list[float], int]:
    return [float(model.optimizer.learning_rate)], int(model.optimizer.iterations)
