"""The turns of the levels: which checkpoint goes to which of them."""

from __future__ import annotations

from collections.abc import Mapping


class Schedule:
    """Which levels each checkpoint of this attempt goes to."""

    def __init__(self, every: Mapping[str, int]) -> None:
        """`every` is as from `levels_of`."""
        self._every = every
        self._taken = 0
        self.now: tuple[str, ...] = ()
        """The levels of the save that has begun last, the nearest first."""

    def turn(self, *, everywhere: bool) -> None:
        """The next save begins."""
        self._taken += 1
        self.now = tuple(
            level for level, n in self._every.items() if everywhere or self._taken % n == 0
        )
