"""Saves by Orbax in ways that users have: asked by a function of their own, in the foreground, and one that fails.

python probe_orbax_saves.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint._src.checkpointers import async_checkpointer

STATE = {"weights": jnp.ones((64, 64)), "step": jnp.zeros((), jnp.int32)}


def by_own_function() -> None:
    """It says yes at every second time that it is asked."""
    asked: list[int] = []

    def every_second(step: int, _: int | None) -> bool:
        asked.append(step)
        return len(asked) % 2 == 0

    options = ocp.CheckpointManagerOptions(should_save_fn=every_second)
    with ocp.CheckpointManager(Path("own").resolve(), options=options) as manager:
        saved = [
            step for step in range(1, 7) if manager.save(step, args=ocp.args.StandardSave(STATE))
        ]
    print(f"asked at {asked}, saved at {saved}")


def in_foreground() -> None:
    options = ocp.CheckpointManagerOptions(save_interval_steps=2, enable_async_checkpointing=False)
    with ocp.CheckpointManager(
        Path("foreground").resolve(), options=options, item_names=("state",)
    ) as manager:
        for step in range(2, 6):
            manager.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(STATE)))


def failing() -> None:
    with ocp.CheckpointManager(Path("failing").resolve()) as manager:
        manager.save(1, args=ocp.args.StandardSave(STATE))
        try:
            manager.save(1, args=ocp.args.StandardSave(STATE), force=True)
        except ValueError as error:
            print(type(error).__name__)
        manager.save(2, args=ocp.args.StandardSave(STATE))


def failing_in_background() -> None:
    """The disk is full when the first is committed; the program hears of that, and saves again."""

    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    commit = async_checkpointer._on_commit_callback
    with ocp.CheckpointManager(Path("background").resolve()) as manager:
        async_checkpointer._on_commit_callback = full_disk
        manager.save(1, args=ocp.args.StandardSave(STATE))
        try:
            manager.wait_until_finished()
        except OSError as error:
            print(type(error).__name__)
        async_checkpointer._on_commit_callback = commit
        manager.save(2, args=ocp.args.StandardSave(STATE))


if __name__ == "__main__":
    by_own_function()
    in_foreground()
    failing()
    failing_in_background()
