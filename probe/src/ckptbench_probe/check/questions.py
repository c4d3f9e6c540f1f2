"""The questions of `check all`: which check answers each, with which options, and what its report says to the question.

A new check joins by one line of QUESTIONS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from ckptbench_probe.check import fail, kill, powercut, resume, saves, stop
from ckptbench_probe.check.asked import CANNOT_TELL_CODE
from ckptbench_probe.check.rhythm import Rhythm

YES, NO, CANNOT_TELL, DOES_NOT_APPLY = "yes", "no", "cannot tell", "does not apply"
Report = dict[str, Any]
"""The JSON file of a check."""
Told = tuple[str, str]
"""A verdict, and why."""


@dataclass(frozen=True)
class Answer:
    name: str
    text: str
    """Of the question."""
    verdict: str
    why: str
    command: str
    """That repeats it."""
    seconds: float
    report: str | None = None
    """Path of the check's report, where it has left one."""


@dataclass(frozen=True)
class Question:
    text: str
    verb: str
    """Of `ckptbench-probe check`."""
    report: str
    options: Callable[[Rhythm], list[str]]
    """For the check. Raises NotApplicableError."""
    answer: Callable[[Report, Rhythm], Told]
    is_resumed: bool = True
    """Whether the check starts the training again, so that it takes options on how to."""


def _plain(report: Report, rhythm: Rhythm) -> Told:
    """As the exit code says, which is that of all checks."""
    code = report["exit_code"]
    text = report["lines"][0].partition("cannot tell: ")
    why = [text[2] or text[0], *(report["lines"][1:2] if code == CANNOT_TELL_CODE else [])]
    return {0: YES, CANNOT_TELL_CODE: CANNOT_TELL}.get(code, NO), ": ".join(why)


def _saved(report: Report, rhythm: Rhythm) -> Told:
    """A pointer that is moved too early is a question of its own."""
    verdict, text = _plain(report, rhythm)
    if report["verdict"] == saves.EARLY:
        return YES, f"nothing tore in {len(report['checkpoints'])} checkpoints"
    return verdict, text


def _pointed(report: Report, rhythm: Rhythm) -> Told:
    """Whether or not the files could be compared."""
    early, code = report["pointed_too_early"], report["command_exit_code"]
    if early:
        return NO, early[0]
    if code or report["troubles"] or not report["ranks"]:
        return CANNOT_TELL, report["troubles"][0] if report["troubles"] else report["lines"][0]
    if not report["pointers"]:
        return DOES_NOT_APPLY, "no pointer to the newest checkpoint was seen"
    return YES, f"each of {report['pointers']} moves came after the save had finished"


def _killed_at(update: int, rhythm: Rhythm) -> list[str]:
    at = rhythm.after_save(update)
    return ["--kill-at", str(at), *rhythm.until(at)]


def _on_other_ranks(rhythm: Rhythm) -> list[str]:
    """After the second save, wherever in an epoch that is: another number of ranks has another order of data."""
    at = rhythm.after_save(2 * rhythm.every)
    return ["--kill-at", str(at), *rhythm.other_ranks]


def _resumed_at_end(report: Report, rhythm: Rhythm) -> Told:
    return _resumed(report, "no epoch's end", lambda start: start % (rhythm.epoch or 1) == 0)


def _resumed_within(report: Report, rhythm: Rhythm) -> Told:
    inside = rhythm.epoch or (1 << 30)
    return _resumed(report, "an epoch's end", lambda start: start % inside != 0)


def _resumed(report: Report, place: str, is_there: Callable[[int], bool]) -> Told:
    """One that began elsewhere answers another question."""
    verdict, text = _plain(report, Rhythm(1))
    start = report["resumed_from"]
    if verdict != CANNOT_TELL and start and not is_there(start):
        return CANNOT_TELL, f"it resumed from update {start}, {place}: {text}"
    return verdict, text


def _stopped(report: Report, rhythm: Rhythm) -> Told:
    """A program that takes no notice may have come to its next regular save, or to its end."""
    verdict, text = _plain(report, rhythm)
    start = report["resumed_from"] or 0
    if verdict == YES and start > report["at"] and start % rhythm.every == 0:
        return CANNOT_TELL, f"it trained on to its regular save of update {start}"
    return verdict, text


QUESTIONS: dict[str, Question] = {
    "resume_epoch": Question("same after a restart at an epoch's end", "resume", resume.REPORT, lambda rhythm: _killed_at(rhythm.epoch_end, rhythm), _resumed_at_end),
    "resume_within": Question("same after a restart in the middle of an epoch", "resume", resume.REPORT, lambda rhythm: _killed_at(rhythm.within_epoch, rhythm), _resumed_within),
    "resume_ranks": Question("the same state on another number of ranks", "resume", resume.REPORT, _on_other_ranks, _plain),
    "saves": Question("each checkpoint is whole", "saves", saves.REPORT, lambda rhythm: [], _saved, is_resumed=False),
    "pointer": Question("the newest pointer is never ahead", "saves", saves.REPORT, lambda rhythm: [], _pointed, is_resumed=False),
    "kill": Question("a kill during a save leaves a whole checkpoint", "kill", kill.REPORT, lambda rhythm: [], _plain),
    "powercut": Question("a power cut during a save leaves a whole checkpoint", "powercut", powercut.REPORT, lambda rhythm: [], _plain),
    "stop": Question("saves when it is asked to stop", "stop", stop.REPORT, lambda rhythm: ["--at", str(rhythm.between_saves)], _stopped),
    "fail": Question("a full disk at a save leaves a whole checkpoint", "fail", fail.REPORT, lambda rhythm: [], _plain),
}  # fmt: skip
"""By name, in the order in which they are asked and shown."""
