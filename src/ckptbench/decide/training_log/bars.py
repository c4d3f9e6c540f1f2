"""Of several progress bars in one log: which counts the steps of the training. How long one lasts says nothing: a download may take longer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.events import Event

OTHER = re.compile(
    r"epochs?$|(?!(?:pre-?)?train).*\b(?:map|token|(?:up|down)?load|fetch|generat|filter|group|pack|eval|valid|test|predict|process|prepar|preproc|extract|resolv|read|sanity|cach|encod|convert|shard)",
    re.IGNORECASE,
)
"""In the name of a bar that counts no steps."""
WHOLE = re.compile(r"(?:\w+ )?steps?|", re.IGNORECASE)
"""The name of a bar of a whole training: the Trainer's has none. Others may be of one epoch."""
ALIKE = 2
"""Bars of one training have steps that differ by no more than this factor."""


@dataclass(slots=True)
class Pass:
    """A bar, known by its name and total, from its beginning until it ends or begins again."""

    key: tuple[str, int]
    events: list[Event] = field(default_factory=list)
    is_marked: bool = False
    """Whether the training prints its loss, a save or its end beside it."""

    @property
    def is_whole(self) -> bool:
        return (self.events[0].step or 0) <= 1 and self.events[-1].step == self.key[1]

    def is_like(self, other: Pass) -> bool:
        """Whether both may be of one training: an evaluation may have as many steps."""
        one, two = ((each.events[-1].at_s or 0.0) / (each.events[-1].step or 1) for each in (self, other))  # fmt: skip
        return self.key == other.key and max(one, two) <= ALIKE * min(one, two)


def only_bar_of_steps(events: Sequence[Event]) -> list[Event]:
    """The same, where other bars are pauses. Raises DataError where the log does not say which bar is that of the steps."""
    passes = [each for each in _passes(events) if not OTHER.match(each.key[0])]
    totals = {event.number for event in events if event.kind == "total"}
    passes = [each for each in passes if each.key[1] in totals] or passes
    if marked := [each for each in passes if each.is_marked]:
        passes = [each for each in passes if each.is_marked or any(map(each.is_like, marked))]
    else:
        keys = [*dict.fromkeys(each.key for each in passes)]
        whole = [each for each in passes if each.is_whole]
        if len(keys) > 1 or not all(each.is_like(whole[0]) for each in whole):
            raise DataError(_ambiguous(keys))
    steps = {id(event) for each in passes for event in each.events}
    return [event if event.kind != "step" or id(event) in steps else Event("pause") for event in events]  # fmt: skip


def planned_of(events: Sequence[Event]) -> int | None:
    """Steps of the whole training, from the bar that counts them. None where it begins again, as one of an epoch does."""
    steps = [event for event in events if event.kind == "step"]
    bars = {(event.bar, event.number) for event in steps}
    if len(bars) != 1 or not WHOLE.fullmatch(steps[0].bar):
        return None
    total = steps[0].number
    ended = [place for place, event in enumerate(steps) if event.step == total]
    goes_on = bool(ended) and any((event.step or 0) < total for event in steps[ended[0] :])
    return None if goes_on else total or None


def _passes(events: Sequence[Event]) -> list[Pass]:
    passes: list[Pass] = []
    latest: dict[tuple[str, int], Pass] = {}
    for event in events:
        if event.kind == "step":
            key = (event.bar, event.number)
            each = latest.pop(key, None)
            if each is None or (event.step or 0) < (each.events[-1].step or 0):
                each = Pass(key)
                passes.append(each)
            latest[key] = each  # comes last
            each.events.append(event)
            each.is_marked = each.is_marked or event.is_marked
        elif event.kind in ("loss", "save"):
            at_step = [each for each in latest.values() if event.kind == "loss" or event.step == each.events[-1].step]  # fmt: skip
            for each in at_step[-1:]:
                each.is_marked = True
    return passes


def _ambiguous(keys: Sequence[tuple[str, int]]) -> str:
    shown = " or ".join(f"{name} ?/{total}".strip() for name, total in keys)
    patterns = " or ".join(f"--log-pattern '{_pattern(*key)}'" for key in keys)
    return f"it does not say which of its bars counts the steps, {shown}: name it by {patterns}"


def _pattern(name: str, total: int) -> str:
    named = f"{re.escape(name).replace('#', 'd+')}.*?" if name else ""
    return rf"{named}\b(?P<step>\d+)/{total} \[(?P<time>[\d:]+)"
