"""Of several progress bars in one log: which counts the steps of the training.

A bar is known by its name and its total. How long it lasts says nothing: a download may take longer than a training.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.events import Event

OTHER = re.compile(
    r"(?!(?:pre-?)?train).*\b(?:map|token|(?:up|down)?load|fetch|generat|filter|group|pack|eval|valid|test|predict|process|prepar|preproc|extract|resolv|read|sanity|cach|encod|convert|shard)",
    re.IGNORECASE,
)
"""In the name of a bar that counts no steps."""
ALIKE = 2
"""Bars of one training have steps that differ by no more than this factor."""
Key = tuple[str, int]


@dataclass(slots=True)
class Pass:
    """A bar from its beginning to its end, or until it begins again."""

    key: Key
    events: list[Event] = field(default_factory=list)
    marks: int = 0
    """Lines that only a training prints: its loss, and its saves."""
    is_evaluation: bool = False

    @property
    def is_whole(self) -> bool:
        first, last = self.events[0].step or 0, self.events[-1].step or 0
        return first <= 1 < last == self.key[1]

    @property
    def step_s(self) -> float:
        return (self.events[-1].at_s or 0.0) / (self.events[-1].step or 1)


def only_bar_of_steps(events: Sequence[Event]) -> list[Event]:
    """The same, where other bars are pauses. Raises DataError where the log does not say which bar is that of the steps."""
    passes, told = _passes(events)
    keys = [key for key in dict.fromkeys(each.key for each in passes) if not OTHER.match(key[0])]
    marked = {each.key for each in passes if each.marks}
    for known in (lambda key: key[1] in told, lambda key: key in marked):
        if any(map(known, keys)):
            keys = [*filter(known, keys)]
    keys = [key for key in keys if not _counts_epochs(key, passes)]
    kept = _of_training([each for each in passes if each.key in keys])
    unmarked = not (marked & {*keys} or any(key[1] in told for key in keys))
    paces = [each.step_s for each in kept if each.is_whole]
    if unmarked and (len(keys) > 1 or (paces and max(paces) > ALIKE * min(paces))):
        raise DataError(_ambiguous(keys))
    steps = {id(event) for each in kept for event in each.events}
    return [event if event.kind != "step" or id(event) in steps else Event("pause") for event in events]  # fmt: skip


def _passes(events: Sequence[Event]) -> tuple[list[Pass], set[int]]:
    """All passes, and the totals that the training says it has."""
    passes: list[Pass] = []
    current: dict[Key, Pass] = {}
    told: set[int] = set()
    for event in events:
        if event.kind == "step":
            key = (event.bar, event.number)
            each = current.pop(key, None)
            if each is None or (event.step or 0) < (each.events[-1].step or 0):
                each = Pass(key)
                passes.append(each)
            current[key] = each  # the latest comes last
            each.events.append(event)
            each.marks += event.is_marked
        elif event.kind == "total":
            told.add(event.number)
        elif event.kind in ("loss", "save") and current:
            at_step = [each for each in current.values() if each.events[-1].step == event.step]
            if latest := [*current.values()] if event.kind == "loss" else at_step:
                latest[-1].marks += 1
        elif event.kind == "pause" and current:
            latest_one = [*current.values()][-1]
            latest_one.is_evaluation = latest_one.is_whole
    return passes, told


def _counts_epochs(key: Key, passes: Sequence[Pass]) -> bool:
    """Whether another bar begins again for each part of this one."""
    parts = sum(len({event.step for event in each.events}) for each in passes if each.key == key)
    others: dict[Key, int] = defaultdict(int)
    for each in passes:
        others[each.key] += each.key != key and each.key[1] > key[1] and each.is_whole
    return any(parts <= number + 1 for number in others.values() if number > 1)


def _of_training(passes: Sequence[Pass]) -> list[Pass]:
    """Without evaluations of as many steps, and without whole passes before the first that prints a loss."""
    own = [each for each in passes if each.marks or not each.is_evaluation] or [*passes]
    first = next((place for place, each in enumerate(own) if each.marks), 0)
    return [each for place, each in enumerate(own) if place >= first or not each.is_whole]


def _ambiguous(keys: Sequence[Key]) -> str:
    shown = " or ".join(f"{name} ?/{total}".strip() for name, total in keys)
    patterns = " or ".join(f"--log-pattern '{_pattern(*key)}'" for key in keys)
    return f"it does not say which of its bars counts the steps, {shown}: name it by {patterns}"


def _pattern(name: str, total: int) -> str:
    named = f"{re.escape(name).replace('#', 'd+')}.*?" if name else ""
    return rf"{named}\b(?P<step>\d+)/{total} \[(?P<time>[\d:]+)"
