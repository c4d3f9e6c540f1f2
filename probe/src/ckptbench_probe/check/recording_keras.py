"""Keras: the model's variables at the begin of the first batch of `fit`, and at the end of each, before the callbacks of the program."""

from __future__ import annotations

import sys
from typing import Any

from ckptbench_probe.check.recorder import RECORDER, Now
from ckptbench_probe.check.state import SLOT
from ckptbench_probe.engines.calls import first
from ckptbench_probe.harmless import say

GENERATOR = "seed_generator_state"
"""In the path of a variable that is a random state."""


def patch(module: Any) -> None:
    own = module.CallbackList
    own.on_train_batch_begin = first(own.on_train_batch_begin, lambda s, *_, **__: _begin(s.model))
    own.on_train_batch_end = first(own.on_train_batch_end, lambda s, *_, **__: _updated(s.model))


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
