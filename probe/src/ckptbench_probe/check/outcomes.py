"""What came of resuming a training from folders that something has spoiled, and the verdict of all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ckptbench_probe.check.restored import broken, start_of
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.check.states import ranks
from ckptbench_probe.words import counted

SAFE, TORN, CANNOT_TELL, LOSES = "safe", "torn", "cannot tell", "loses"
EXIT_CODES = {SAFE: 0, TORN: 1, CANNOT_TELL: 2, LOSES: 3}


@dataclass(frozen=True)
class Outcome:
    point: str
    verdict: str
    text: str
    resumed_from: int | None = None


@dataclass(frozen=True)
class Verdict:
    verdict: str
    lines: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = ()

    @property
    def code(self) -> int:
        return EXIT_CODES[self.verdict]


def cannot_tell(reason: str) -> Verdict:
    return Verdict(CANNOT_TELL, (f"cannot tell: {reason}",))


def outcome(point: str, before: Ended, again: Ended) -> Outcome:
    """Of a training that was resumed: `again`, from what `before` has saved."""
    saved, restored = ranks(before.folder), ranks(again.folder)
    start = start_of(saved, restored)
    why = broken(saved, restored, start, again)
    if why:
        return Outcome(point, TORN, why)
    if not isinstance(start, int):
        return Outcome(point, CANNOT_TELL, "its state is that of several updates")
    if not start:
        return Outcome(point, LOSES, "it begins again at 0: no checkpoint was left", 0)
    return Outcome(point, SAFE, f"resumed from {start}", start)


def verdict(found: list[Outcome], thing: str, save: int, update: int) -> Verdict:
    """`thing`: what has spoiled each folder in the save."""
    bad = [one for one in found if one.verdict in (TORN, LOSES)]
    unknown = [one for one in found if one.verdict == CANNOT_TELL]
    worst = min((one.verdict for one in bad), key=[TORN, LOSES].index, default=CANNOT_TELL if unknown else SAFE)  # fmt: skip
    where = f"of {counted(len(found), thing)} in save {save}, of update {update},"
    first = {
        TORN: f"TORN: {len(bad)} {where} leave no checkpoint that it resumes from",
        LOSES: f"LOSES ALL: {len(bad)} {where} leave no checkpoint",
        CANNOT_TELL: f"cannot tell: {len(unknown)} {where} could not be judged",
        SAFE: f"safe: after each {where} it is resumed from a whole checkpoint",
    }[worst]
    lines = [first, *(f"{one.point}: {one.text}" for one in [*bad, *unknown])]
    times = Counter(one.resumed_from for one in found if one.verdict == SAFE)
    if times:
        told = ", ".join(f"from {update} ({counted(number, 'time')})" for update, number in times.items())  # fmt: skip
        lines.append(f"resumed whole: {told}")
    return Verdict(worst, tuple(lines), tuple(found))
