"""Orbax: what `CheckpointManager.save` is given, and what it has written, read by `PyTreeCheckpointer`.

The tree that is read has other types than the one that was saved, so values are found by their digest.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from typing import Any, Callable

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
    manager = module.CheckpointManager
    manager.save = CHECKER.around(manager.save, functools.partial(_begin, functools.cache(_listen)))
    if hasattr(manager, "_finalize"):
        manager._finalize = _heard(manager._finalize)


def _begin(listen: Callable[[], None], args: Any, kwargs: Any) -> Given | None:
    outer = PROCESS.saves.outermost
    if outer is None:
        return None  # `engines.orbax` has asked Orbax, which skips this step
    listen()
    given = CHECKER.begin("orbax", outer.path)
    CHECKER.take(given, lambda: _parts(args, kwargs))
    _UNDER_WAY.append(given)
    return given


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
    for given in list(_UNDER_WAY):
        if given is not None and given.path == path:
            CHECKER.failed(given, error)


def _parts(args: Any, kwargs: Any) -> Values:
    for name, value in given_arrays(args[2:], kwargs):  # after the manager and the step
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
    """On the thread that has written it. Of those that have failed nothing is heard."""
    while _UNDER_WAY and _UNDER_WAY[0] is not None and _UNDER_WAY[0].told:
        _UNDER_WAY.popleft()
    if event == SUCCESS and _UNDER_WAY:
        CHECKER.written(_UNDER_WAY.popleft(), read)


def read(given: Given) -> Values:
    """The items of the step are folders, `default` where there is only one."""
    import orbax.checkpoint as ocp
    from etils import epath

    found: list[Any] = []
    folders = [one for one in epath.Path(given.path).iterdir() if one.is_dir()]
    for item in (one for one in folders if (one / "_METADATA").exists()):
        with ocp.PyTreeCheckpointer() as reader:
            leaves = arrays(reader.restore(item))
            found += [_whole(value) for _, value in leaves if is_tensor(value)]
    return by_value(given, found)
