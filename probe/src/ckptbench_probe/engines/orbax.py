"""`CheckpointManager.save` of Orbax. JAX has no hook for steps: where `save` is called after every step, it is one, and returns False where it skips.

When a save is finished, Orbax tells `jax.monitoring`.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from typing import Any

from ckptbench_probe.process import PROCESS
from ckptbench_probe.saves import Save

SUCCESS = "/jax/orbax/write/success"
"""Of the event that follows the commit, on the thread that writes."""


def patch(module: Any) -> None:
    original = module.CheckpointManager.save
    follower = _Follower()

    @functools.wraps(original)
    def save(self: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        PROCESS.updates.tick()
        if not self.should_save(step) and not kwargs.get("force"):
            return original(self, step, *args, **kwargs)
        follower.listen()
        begun = PROCESS.saves.begin("orbax", str(self.directory / str(step)))
        follower.follow(begun)
        try:
            saved = original(self, step, *args, **kwargs)
        except BaseException:
            PROCESS.saves.end(begun, failed=True)
            raise
        PROCESS.saves.end(begun)
        PROCESS.saves.captured(begun)
        return saved

    module.CheckpointManager.save = save


class _Follower:
    """Saves are written one after another: the next waits for the one before, which is told of while it waits."""

    def __init__(self) -> None:
        self._under_way: deque[Save] = deque()
        self._listens = False

    def follow(self, save: Save | None) -> None:
        if save is not None:
            self._under_way.append(save)

    def listen(self) -> None:
        monitoring = getattr(sys.modules.get("jax"), "monitoring", None)
        if self._listens or monitoring is None:
            return
        self._listens = True
        monitoring.register_event_listener(self._hear)

    def _hear(self, event: str, **_: Any) -> None:
        if event == SUCCESS and self._under_way:
            PROCESS.saves.finished(self._under_way.popleft())
