"""What ranks agree on through their launcher: the last step before a stop, and values that all of them give.

An answer is due when everybody has spoken who is present. The methods return it as a message for all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]


class Agreements:
    """What the ranks have said so far. It sends nothing."""

    def __init__(self) -> None:
        self.is_asked = False
        """Whether the ranks have been asked to stop."""
        self._entered: dict[int, int] = {}
        self._last_step: int | None = None
        """None: it is not decided. Otherwise some ranks may have entered it already."""
        self.stopped: dict[int, int] = {}
        """Number of steps that each rank has done when it stopped."""
        self.given: dict[str, dict[int, Any]] = {}
        """The values that ranks have given, by name and rank, until all have."""

    def enter(self, rank: int, step: int) -> None:
        """Note that the rank, which was asked to stop, has entered this step and enters no further one."""
        self._entered[rank] = step

    def decide_last_step(self, present: Sequence[int]) -> Message | None:
        """The last step of all, when it can be decided; None before that, and when it has been before."""
        if self._last_step is not None or not self._entered:
            return None
        if not self._entered.keys() >= {*present}:
            return None
        self._last_step = max(self._entered.values())
        return {"last_step": self._last_step}

    def give(self, rank: int, name: str, value: Any) -> None:
        """Note the value that the rank gives under this name."""
        self.given.setdefault(name, {})[rank] = value

    def gathered(self, name: str, present: Sequence[int]) -> Message | None:
        """The values of all under this name, in the order of `present`, when all have given theirs; None before that."""
        given = self.given[name]
        if not given.keys() >= {*present}:
            return None
        del self.given[name]
        return {"gathered": name, "values": [given[rank] for rank in present]}

    def stopped_at(self, present: Sequence[int]) -> int | None:
        """Number of steps done when the ranks stopped on request; None until all have stopped."""
        everybody = bool(self.stopped) and self.stopped.keys() >= {*present}
        return max(self.stopped.values()) if everybody else None

    def for_a_latecomer(self) -> list[Message]:
        """What all ranks have been told about a stop, for one that was not there."""
        asked = [{"stop": True}] if self.is_asked else []
        decided = [{"last_step": self._last_step}] if self._last_step is not None else []
        return [*asked, *decided]

    def forget(self, rank: int) -> None:
        """Leave out what a lost rank has said."""
        for said in (self._entered, self.stopped, *self.given.values()):
            said.pop(rank, None)

    def clear(self) -> None:
        """Leave out what the ranks of an attempt have said, which is over. What they have been asked stays asked."""
        self._entered.clear()
        self.stopped.clear()
        self.given.clear()
        self._last_step = None
