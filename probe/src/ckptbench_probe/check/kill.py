"""`ckptbench-probe check kill`: kill a training at events of one of its saves, and start it again each time."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ckptbench_probe.check import folders, points
from ckptbench_probe.check.asked import (
    Asked,
    add_options,
    add_save,
    answered,
    asked,
    complete,
    too_few,
)
from ckptbench_probe.check.killing import END, FILE_EVENT, KILLED, RECORD, WRITE
from ckptbench_probe.check.outcomes import (
    CANNOT_TELL,
    EXIT_CODES,
    SAFE,
    Outcome,
    Verdict,
    cannot_tell,
    outcome,
    verdict,
)
from ckptbench_probe.check.points import Point
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.check.runs import run as run_once
from ckptbench_probe.harmless import TOLD
from ckptbench_probe.reading import Event, traces
from ckptbench_probe.variables import END_AT, KILL_AT, KILL_IN

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

REPORT = "kill.json"
RECORDED, CONTROL = "recorded", "control"


def add(verbs: Verbs) -> None:
    own = verbs.add_parser(
        "kill",
        help="whether a kill during a save leaves a whole checkpoint",
        usage="ckptbench-probe check kill [options] -- COMMAND ... {folder} ...",
        description="Records what one save does to files. Then, for some events (--all: each): runs the training, kills it there by SIGKILL, and resumes it. "
        f"Exit codes: {', '.join(f'{code} {verdict}' for verdict, code in EXIT_CODES.items())} (the resume begins at 0).",
    )
    add_save(own, "; the training needs one more")
    own.add_argument(
        "--all",
        action="store_true",
        help="kill at every event of every rank; default: at some of them",
    )
    add_options(own, REPORT)


def run(options: argparse.Namespace) -> int:
    return answered(options, REPORT, lambda: _judged(options))


def _judged(options: argparse.Namespace) -> tuple[Asked, Verdict, dict[str, Any]]:
    own = asked(options, "check kill")
    folders.require_local([own.command, own.again], "check kill")
    with folders.kept(own.output, own.folder.name):
        judged = Check(own, options.save).made(whole=options.all)
        judged = complete(own, judged, cannot_tell)
    return own, judged, {"save": options.save, **asdict(judged)}


class Check:
    def __init__(self, own: Asked, save: int) -> None:
        self._own, self._save = own, save
        self._limit_s = own.limit_s
        self._window = ""
        self._before = ""
        """Run whose checkpoints lie in a folder that the program has fixed."""

    def made(self, *, whole: bool) -> Verdict:
        """`whole`: at every event."""
        recorded = self._run(RECORDED, f"{RECORD} {self._save}")
        if recorded.failed:
            return cannot_tell(f"the training that was recorded {recorded.reason()}")
        saves = saves_begun(recorded)
        if len(saves) <= self._save:
            return cannot_tell(too_few(self._save + 1))
        self._limit_s = self._own.limit_after(recorded)
        begin, end = saves[self._save - 1 :][:2]
        self._window = f"{begin} {end}"
        events = _events(recorded, begin, end)
        if not events:
            return cannot_tell(f"save {self._save} wrote no file that the probe sees")
        control = self._resumed(CONTROL, self._run(CONTROL, self._window), "after the save")
        if control.verdict != SAFE:
            return cannot_tell(
                f"killed long after the save, it is not resumed from a whole update either ({control.text}): run check resume first"
            )
        some = points.every(events) if whole else points.chosen(events)
        found = [self._killed(number, one) for number, one in enumerate(some, 1)]
        return verdict(found, "kill", self._save, begin)

    def _killed(self, number: int, point: Point) -> Outcome:
        name = f"killed-{number}"
        print(f"{TOLD}killed {point.name} ...", file=sys.stderr, flush=True)
        ended = self._run(name, f"{self._window} {point.told}")
        if not ended.at_update or ended_at(ended)[0]["what"] == END:
            return Outcome(point.name, CANNOT_TELL, "this time the save had no such event")
        return self._resumed(name, ended, point.name)

    def _run(self, name: str, at: str, **more: str) -> Ended:
        """`at`: of KILL_AT. `more`: variables of its processes."""
        folders.set_aside(self._own.output, f"{self._own.folder.name}-{self._before}")
        self._before = name
        place = self._own.checkpoints(name)
        seen = self._own.output or folders.seen([self._own.command, self._own.again], place)
        told = {KILL_IN: str(seen), KILL_AT: at, **more}
        return self._start(name, folders.placed(self._own.command, place), told)

    def _start(self, name: str, command: list[str], told: dict[str, str]) -> Ended:
        return run_once(
            command, self._own.folder / name, check="resume", limit_s=self._limit_s, told=told
        )

    def _resumed(self, name: str, killed: Ended, point: str) -> Outcome:
        command = folders.placed(self._own.again, self._own.checkpoints(name))
        again = self._start(f"{name}-resumed", command, {END_AT: "1"})
        return outcome(point, killed, again)


def saves_begun(run: Ended) -> list[int]:
    """After which updates saves began, that among them which ended the run. Where the probe knows no engine that saves, those after which files were written."""
    if run.at_update:
        end, events = ended_at(run)
        saves = (one["updates"] for one in events if one["event"] == "save")
        return sorted({end["updates"], *saves})
    every = [one for _, events in traces(run.folder) for one in events]
    written = {one["updates"] for one in every if one["event"] == FILE_EVENT and one["what"] == WRITE}  # fmt: skip
    return [] if any(one["event"] == "save" for one in every) else sorted(written - {0})


def ended_at(run: Ended) -> tuple[Event, list[Event]]:
    """The event at which a rank has ended the run, and all events of that rank."""
    for _, events in traces(run.folder):
        for one in events:
            if one["event"] == KILLED:
                return one, events
    raise LookupError(f"{run.folder}: no rank has ended this run")


def _events(run: Ended, begin: int, end: int) -> list[Event]:
    """Of each rank those between these updates, with their numbers."""
    found: dict[int, list[Event]] = defaultdict(list)
    for _, events in traces(run.folder):
        for one in events:
            if one["event"] == FILE_EVENT and begin <= one["updates"] < end:
                own = found[one["rank"]]
                own.append({**one, "index": len(own)})
    return [one for rank in sorted(found) for one in found[rank]]
