"""`CheckpointManager.save` of Orbax. JAX has no hook for steps: where `save` is called after every step, it is one, and returns False where it skips.

When a save is finished, Orbax tells `jax.monitoring`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from typing import Any

from ckptbench_probe.engines.calls import argument
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.saves import Save

SUCCESS = "/jax/orbax/write/success"
"""Of the event that follows the commit, on the thread that writes."""
FORCE = 5
"""Place of the argument `force`."""


def patch(module: Any) -> None:
    manager = module.CheckpointManager
    original = manager.save
    follower = _Follower()
    asked = _AskedOnce(manager.should_save)

    @harmless
    def begin(manager: Any, step: int, args: Any, kwargs: Any) -> Save | None:
        """None where it skips this step."""
        PROCESS.updates.tick()
        forced = argument((manager, step, *args), kwargs, FORCE, "force")
        if not forced and not asked.ahead(manager, step):
            return None
        follower.listen()
        begun = PROCESS.saves.begin("orbax", str(manager.directory / str(step)))
        if begun is not None and begun.watched is not None:
            begun.watched.is_listed = True  # tensorstore writes the arrays
        follower.follow(begun)
        return begun

    @functools.wraps(original)
    def save(self: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        begun = begin(self, step, args, kwargs)
        if begun is None:
            return original(self, step, *args, **kwargs)
        try:
            saved = original(self, step, *args, **kwargs)
        except BaseException:
            harmless(follower.forget)()
            PROCESS.saves.end(begun, failed=True)
            raise
        PROCESS.saves.end(begun, harmless(_arrays)(args, kwargs))
        PROCESS.saves.captured(begun)
        return saved

    manager.save = save
    manager.should_save = asked.should_save()
    if hasattr(manager, "_finalize"):
        manager._finalize = follower.finalizing(manager._finalize)


class _AskedOnce:
    """Whether a step is saved may be up to code of the program, which can tell how often it is asked. The answer to the probe is kept for Orbax."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self._answer = threading.local()

    def ahead(self, manager: Any, step: int) -> bool:
        self._answer.known = None
        self._answer.known = (manager, step, manager.should_save(step))
        return bool(self._answer.known[2])

    def should_save(self) -> Any:
        @functools.wraps(self._original)
        def should_save(manager: Any, step: int) -> Any:
            known, self._answer.known = getattr(self._answer, "known", None), None
            if known is not None and known[0] is manager and known[1] == step:
                return known[2]
            return self._original(manager, step)

        return should_save


def items(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What is to be saved: one item, or several by name; `items` is how Orbax was told before it had `args`."""
    given = argument(args, kwargs, 4, "args")
    if given is None:
        return {"": argument(args, kwargs, 0, "items")}
    parts = given.items() if hasattr(given, "items") else [("", given)]
    return {name: getattr(part, "item", None) for name, part in parts}


def _arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    leaves: list[Any] = sys.modules["jax"].tree_util.tree_leaves(items(args, kwargs))
    return leaves


class _Follower:
    """Saves are written one after another: the next waits for the one before, which is told of while it waits.

    Of one that fails, and on ranks other than the first, no event comes: Orbax finalizes it all the same.
    """

    def __init__(self) -> None:
        self._under_way: deque[Save] = deque()
        self._listens = False

    def follow(self, save: Save | None) -> None:
        if save is not None:
            self._under_way.append(save)

    def forget(self) -> None:
        """A save has failed: those before it were waited for, so that nothing is under way."""
        self._under_way.clear()

    def listen(self) -> None:
        monitoring = getattr(sys.modules.get("jax"), "monitoring", None)
        if self._listens or monitoring is None:
            return
        self._listens = True
        monitoring.register_event_listener(self._hear)

    def finalizing(self, original: Any) -> Any:
        @functools.wraps(original)
        def finalize(manager: Any, step: int, *args: Any, **kwargs: Any) -> Any:
            try:
                result = original(manager, step, *args, **kwargs)
            except BaseException:
                self._ended(manager, step, failed=True)
                raise
            self._ended_elsewhere(manager, step)
            return result

        return finalize

    @harmless
    def _ended_elsewhere(self, manager: Any, step: int) -> None:
        if sys.modules["jax"].process_index():
            self._ended(manager, step)

    @harmless
    def _ended(self, manager: Any, step: int, *, failed: bool = False) -> None:
        path = str(manager.directory / str(step))
        for save in [one for one in self._under_way if one.path == path]:
            self._under_way.remove(save)
            PROCESS.saves.finished(save, failed=failed)

    @harmless
    def _hear(self, event: str, **_: Any) -> None:
        if event == SUCCESS and self._under_way:
            PROCESS.saves.finished(self._under_way.popleft())
