"""What the saves of a training have cost so far. It goes into the checkpoint, equal on all ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from statistics import fmean, median
from typing import Any

from ckptbench_probe.due.target import Target, wrong

REMEMBERED = 15
"""Saves whose costs count: each is blurred by how much some steps vary, which may be more than it costs."""
PERIODS = 5
"""Times between saves, of whose mean steps the median counts."""
FIRST_COUNTS = 0.25
"""The first save also allocates and connects. This part of it makes the next interval half as long; the second save replaces it."""
LEAST_COST = 0.01
"""Of a step: less is noise."""
WAITED = 2.0
"""A save that costs so many cheapest ones, and a step more than one, may have waited for the save before."""


@dataclass
class Learned:
    interval: int = 0
    """Steps between two saves; 0: not known yet."""
    saves: int = 0
    costs_s: list[float] = field(default_factory=list)
    """Stall and slower steps of the last saves."""
    steps_s: list[float] = field(default_factory=list)
    """Mean step, evaluations included, of the last periods without a save."""
    took_s: float = 0.0
    """From the start of a save until it is finished, where it goes on in the background."""
    clear_s: float = math.inf
    """The shortest time from the start of a save to that of the next one which did not wait for it."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Learned:
        """Raises ValueError, whose message is one line."""
        if not isinstance(state, Mapping) or set(state) != {one.name for one in fields(cls)}:
            raise wrong("load_state_dict() got another state: give it what state_dict() returned")
        return cls(**{**state, "costs_s": list(state["costs_s"]), "steps_s": list(state["steps_s"])})  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "costs_s": [*self.costs_s], "steps_s": [*self.steps_s]}

    @property
    def step_s(self) -> float:
        return median(self.steps_s)

    def add_period(self, step_s: float) -> None:
        self.steps_s = [*self.steps_s, step_s][-PERIODS:]

    def add_save(self, cost_s: float, took_s: float, since_s: float, target: Target) -> None:
        """`took_s`: until its end was seen, else 0. `since_s`: from the start of the save before in this process."""
        self.saves += 1
        cost_s = max(cost_s, LEAST_COST * self.step_s)
        if took_s:
            self.took_s = took_s
        elif since_s < math.inf:
            cost_s = self._without_wait(cost_s, since_s)
        kept = [] if self.saves == 2 else self.costs_s
        self.costs_s = [*kept, cost_s][-REMEMBERED:]
        cost_s = _usual(self.costs_s) * (FIRST_COUNTS if self.saves == 1 else 1.0)
        self.interval = target.steps(cost_s, self.took_s, self.step_s)

    def _without_wait(self, cost_s: float, since_s: float) -> float:
        """Programs wait for the save before, whose end is not seen. Then that took as long as from its start until here; if so, later saves wait no more."""
        usual_s = min([cost_s, *self.costs_s])
        if cost_s <= max(WAITED * usual_s, usual_s + self.step_s):
            self.clear_s = min(self.clear_s, since_s)
        elif since_s < self.clear_s and since_s < (self.took_s or math.inf):
            self.took_s = since_s + cost_s - usual_s
            return usual_s
        else:  # it has not waited
            self.took_s, self.clear_s = 0.0, min(self.clear_s, since_s)
        return cost_s


def _usual(values: list[float]) -> float:
    """Mean of the middle half: less blurred than the median, and no outlier counts."""
    ends = len(values) // 4 or (len(values) - 1) // 2
    return fmean(sorted(values)[ends : len(values) - ends])
