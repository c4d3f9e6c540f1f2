"""Orbax: what `CheckpointManager.save` is given, and what it has written, read by `PyTreeCheckpointer`.

The tree that is read has other types than the one that was saved, so values are found by their digest.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import deque
from typing import Any

from ckptbench_probe.check.given import CHECKER
from ckptbench_probe.check.one_save import Given, Values
from ckptbench_probe.check.readers import by_value
from ckptbench_probe.check.recording_orbax import given_arrays
from ckptbench_probe.check.trees import arrays, is_tensor
from ckptbench_probe.engines.orbax import SUCCESS
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS

_UNDER_WAY: deque[Given | None] = deque()
"""They are written one after another."""


def patch(module: Any) -> None:
    original = module.CheckpointManager.save
    listen = functools.cache(_listen)

    @harmless
    def begin(values: list[Any]) -> Given | None:
        outer = PROCESS.saves.outermost
        if outer is None:
            return None  # `engines.orbax` has asked Orbax, which skips this step
        listen()
        given = CHECKER.begin("orbax", outer.path)
        CHECKER.take(given, lambda: _parts(values))
        _UNDER_WAY.append(given)
        return given

    @functools.wraps(original)
    def save(self: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        given = begin([*args, *kwargs.values()])
        if given is None:
            return original(self, step, *args, **kwargs)
        try:
            return CHECKER.through(given, original, self, step, *args, **kwargs)
        except BaseException:
            if given in _UNDER_WAY:
                _UNDER_WAY.remove(given)
            raise

    module.CheckpointManager.save = save
    if hasattr(module.CheckpointManager, "_finalize"):
        module.CheckpointManager._finalize = _heard(module.CheckpointManager._finalize)


def _heard(finalize: Any) -> Any:
    """Of a save that fails in the background no event comes."""

    @functools.wraps(finalize)
    def heard(manager: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        try:
            return finalize(manager, step, *args, **kwargs)
        except BaseException as error:
            _failed(manager, step, error)
            raise

    return heard


@harmless
def _failed(manager: Any, step: int, error: BaseException) -> None:
    path = str(manager.directory / str(step))
    for given in [one for one in _UNDER_WAY if one is not None and one.path == path]:
        _UNDER_WAY.remove(given)
        CHECKER.failed(given, error)


def _parts(given: list[Any]) -> Values:
    for argument in given:
        for name, value in given_arrays(argument):
            yield name, _whole(value)


def _whole(value: Any) -> Any:
    """As it lies on one device: only such a value has one order of its bytes. Others are not compared."""
    jax = sys.modules["jax"]
    if not isinstance(value, jax.Array):
        return value
    if not value.is_fully_addressable:
        return object()
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return sys.modules["numpy"].asarray(value)


def _listen() -> None:
    sys.modules["jax"].monitoring.register_event_listener(_hear)


@harmless
def _hear(event: str, **_: Any) -> None:
    """On the thread that has written it."""
    if event == SUCCESS and _UNDER_WAY:
        CHECKER.written(_UNDER_WAY.popleft(), read)


def read(given: Given) -> Values:
    """The items of the step are folders, `default` where there is only one."""
    import orbax.checkpoint as ocp

    found: list[Any] = []
    with os.scandir(given.path) as entries:
        items = [entry.path for entry in entries if entry.is_dir() and _is_tree(entry.path)]
    for item in items:
        with ocp.PyTreeCheckpointer() as reader:
            leaves = arrays(reader.restore(item))
            found += [_whole(value) for _, value in leaves if is_tensor(value)]
    return by_value(given, found)


def _is_tree(item: str) -> bool:
    return os.path.exists(os.path.join(item, "_METADATA"))
