"""The turns of the levels: which checkpoint goes to which of them."""

from __future__ import annotations

from collections.abc import Mapping


class Schedule:
    """Which levels each checkpoint of a run goes to. Its step alone decides, so that all attempts at the run agree."""

    def __init__(self, every: Mapping[str, int], interval_steps: int) -> None:
        """`every` is as from `levels_of`. A checkpoint is due every `interval_steps` steps; 0 for never."""
        self._every = every
        self._interval_steps = interval_steps
        self.now: tuple[str, ...] = ()
        """The levels of the save that has begun last, the nearest first."""

    def turn(self, step: int, *, everywhere: bool) -> None:
        """The save of `step` begins. One that is not due, as where the run is told to stop, counts with the due one before."""
        number = step // self._interval_steps if self._interval_steps else step
        self.now = tuple(level for level, n in self._every.items() if everywhere or number % n == 0)
