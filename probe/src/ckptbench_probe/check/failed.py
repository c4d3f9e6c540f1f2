"""How a training took a save that was refused: one verdict, its reasons, its exit code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ckptbench_probe.check import outcomes, refusing_store
from ckptbench_probe.check.refused_calls import ERRORS
from ckptbench_probe.check.runs import LOG, Ended
from ckptbench_probe.words import counted

SAFE, TORN, CANNOT_TELL, LOSES, SILENT, HANGS, STOPS = (
    "safe", "torn", "cannot tell", "loses", "silent", "hangs", "stops saving",
)  # fmt: skip
EXIT_CODES = {
    verdict: code
    for code, verdict in enumerate((SAFE, TORN, CANNOT_TELL, LOSES, SILENT, HANGS, STOPS))
}
WORST = (TORN, LOSES, HANGS, STOPS, SILENT, CANNOT_TELL, SAFE)
NAMES = {
    "full": "a full disk", "quota": "a quota", "unwritable": "an unwritable folder",
    refusing_store.BUSY: "a store that is busy (503)", refusing_store.DENIED: "a store that refuses (403)",
}  # fmt: skip
REASONS = {**{kind: os.strerror(error) for kind, error in ERRORS.items()}, **refusing_store.REASONS}
RANK = re.compile(r"^\[rank\d+\]: ?")
"""What PyTorch puts before each line of an error."""
ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception)\b")
"""The last line of what Python writes of an error."""
TROUBLE = re.compile(
    r"error|exception|fail|warn|could not|cannot|can't|unable|skip|denied|refus", re.IGNORECASE
)
NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
LONGEST = 200


@dataclass(frozen=True)
class Failure:
    """Of one way to refuse the save."""

    kind: str
    verdict: str
    text: str
    message: str = ""
    """The line of its output that names the failure."""
    exit_code: int | None = None
    """None where training goes on."""
    resumed_from: int | None = None


@dataclass(frozen=True)
class Verdict:
    verdict: str
    lines: tuple[str, ...]
    """For the user, the point first."""
    failures: tuple[Failure, ...] = ()

    @property
    def code(self) -> int:
        return EXIT_CODES[self.verdict]


def cannot_tell(reason: str) -> Verdict:
    return Verdict(CANNOT_TELL, (f"cannot tell: {reason}",))


@dataclass(frozen=True)
class Refused:
    """A training of which a save was refused, and the resume from what it has left."""

    kind: str
    save: int
    older: int
    """The update of the save before, which may be resumed from; 0: there is none."""
    run: Ended
    paths: list[str]
    """Of which calls were refused."""
    resumed: outcomes.Outcome
    message: str


def message(run: Ended, undisturbed: Ended, kind: str) -> str:
    """The line that names the failure best, of those that the undisturbed run has not written."""
    usual = {_bare(line) for line in _lines(undisturbed)}
    lines = [line for line in _lines(run) if _bare(line) not in usual]
    reason = REASONS[kind]
    for names in (lambda line: reason in line, ERROR.search, TROUBLE.search):
        found = next(filter(names, lines), "")
        if found:
            return found[:LONGEST]
    return ""


def _bare(line: str) -> str:
    """Without what differs from run to run, as times and numbers of processes."""
    return NUMBER.sub("", line)


def _lines(run: Ended) -> list[str]:
    text = (run.folder / LOG).read_text(errors="replace")
    return [RANK.sub("", line).strip() for line in text.split("\n")]


def judge(seen: Refused) -> Failure:
    """By what the resume takes, then by how the training ended; of one that goes on, its later saves are judged by `later`."""
    run, resumed = seen.run, seen.resumed
    code = None if run.at_update or run.hung else run.code

    def failure(verdict: str, text: str) -> Failure:
        return Failure(seen.kind, verdict, text, seen.message, code, resumed.resumed_from)

    if not seen.paths:
        return failure(CANNOT_TELL, f"save {seen.save} made no call that could be refused")
    how = _how(run)
    if resumed.verdict == outcomes.TORN:
        return failure(TORN, f"{how}, and what is left cannot be resumed from: {resumed.text}")
    if resumed.verdict == outcomes.CANNOT_TELL:
        return failure(CANNOT_TELL, f"{how}; of the resume, {resumed.text}")
    if resumed.verdict == outcomes.LOSES and seen.older:
        return failure(LOSES, f"{how}, and the older checkpoints are lost: {resumed.text}")
    where = f"{how}; {resumed.text}"
    start = resumed.resumed_from or 0
    if start < seen.older:
        where += f", as the checkpoint of {seen.older} is lost too"
    if run.hung:
        return failure(HANGS, where)
    if code == 0:
        return failure(SILENT, f"{where}; a scheduler takes exit code 0 for a complete training")
    if code is None and not seen.message and start <= seen.older:
        return failure(SILENT, f"{where}; nothing in its output says that the save has failed")
    return failure(SAFE, where)


def _how(run: Ended) -> str:
    if run.at_update:
        return "training goes on"
    if run.hung:
        return f"training hangs: it had not ended after {run.took_s:.0f} s"
    return f"training ends with exit code {run.code}" if run.code >= 0 else f"training ends by signal {-run.code}"  # fmt: skip


def later(
    found: Failure, run: Ended, resumed: outcomes.Outcome, message: str, save: int
) -> Failure:  # fmt: skip
    """With the next save of a training that goes on, where the error of an asynchronous save may come."""
    start, code = resumed.resumed_from or 0, None if run.at_update or run.hung else run.code
    following = f"save {save + 1}, which nothing refuses,"
    verdict = {outcomes.TORN: TORN, outcomes.LOSES: LOSES, outcomes.CANNOT_TELL: CANNOT_TELL}.get(resumed.verdict)  # fmt: skip
    if verdict is not None:
        text = f"{following} leaves no whole checkpoint: {resumed.text}"
    elif not run.at_update:
        verdict = HANGS if run.hung else SAFE if code else SILENT
        text = f"at save {save + 1} {_how(run)}; {resumed.text}"
    elif start <= (found.resumed_from or 0):
        verdict, text = STOPS, f"{following} is missing too: {resumed.text}"
    else:
        verdict = SAFE if message else found.verdict
        text = f"after save {save + 1}, {resumed.text}"
    return Failure(found.kind, verdict, f"{found.text}; {text}", found.message or message, code, start)  # fmt: skip


def verdict(found: list[Failure], save: int, update: int) -> Verdict:
    worst = min((one.verdict for one in found), key=WORST.index)
    where = f"save {save}, of update {update}"
    bad = [one for one in found if one.verdict == worst]
    by = " and ".join(NAMES[one.kind] for one in bad)
    first = {
        SAFE: f"safe: when {where}, is refused, a whole checkpoint is left",
        TORN: f"TORN: {by} at {where}, leaves no checkpoint that it resumes from",
        LOSES: f"LOSES ALL: {by} at {where}, leaves no checkpoint",
        HANGS: f"hangs: {by} at {where}, and the training stands still",
        STOPS: f"stops saving: {by} at {where}, and later saves are missing",
        SILENT: f"silent: {by} at {where}, goes unnoticed",
        CANNOT_TELL: f"cannot tell: {counted(len(bad), 'refusal')} of {where}, could not be judged",
    }[worst]
    return Verdict(worst, (first, *_details(found)), tuple(found))


def _details(found: list[Failure]) -> Iterator[str]:
    for one in found:
        yield f"{NAMES[one.kind]}: {one.text}"
        if one.message:
            why = "" if REASONS[one.kind] in one.message else ", without the reason"
            yield f"its output says{why}: {one.message}"
