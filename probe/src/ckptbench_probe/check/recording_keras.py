"""Keras: the model's variables at the begin of the first batch of `fit`, and at the end of each, before the callbacks of the program."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ckptbench_probe.check.recorder import RECORDER, Now
from ckptbench_probe.check.state import SLOT
from ckptbench_probe.harmless import harmless, say

GENERATOR = "seed_generator_state"
"""In the path of a variable that is a random state."""


def patch(module: Any) -> None:
    callbacks = module.CallbackList
    begin, end = callbacks.on_train_batch_begin, callbacks.on_train_batch_end

    @functools.wraps(begin)
    def on_train_batch_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        harmless(lambda: _begin(self.model))()
        return begin(self, *args, **kwargs)

    @functools.wraps(end)
    def on_train_batch_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        harmless(lambda: _updated(self.model))()
        return end(self, *args, **kwargs)

    callbacks.on_train_batch_begin = on_train_batch_begin
    callbacks.on_train_batch_end = on_train_batch_end


def _begin(model: Any) -> None:
    if _seen(model):
        RECORDER.before(lambda: _now(model), lambda: _now(model))


def _updated(model: Any) -> None:
    if _seen(model):
        RECORDER.updated(_now(model))


def _seen(model: Any) -> bool:
    """With JAX, the variables are not those of the last batch while `fit` runs."""
    if sys.modules["keras"].backend.backend() != "jax":
        return True
    say("cannot see the state of Keras with JAX: use session() and s.step(state=...)")
    return False


def _now(model: Any) -> Now:
    """What a layer draws from is one of its variables, as that of a dropout."""
    optimizer = model.optimizer
    own = {variable.path: variable.value for variable in model.variables}
    tensors = {_bare(path): value for path, value in own.items() if GENERATOR not in path}
    slots = {f"optimizer{SLOT}{_bare(each.path)}": each.value for each in optimizer.variables}
    return Now(
        {**tensors, **slots}.items(),
        [float(optimizer.learning_rate)],
        int(optimizer.iterations),
        {path: value for path, value in own.items() if GENERATOR in path},
    )


def _bare(path: str) -> str:
    return path.replace(SLOT, ".")
