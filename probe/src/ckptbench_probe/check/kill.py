"""`ckptbench-probe check kill`: kill a training at events of one of its saves, and start it again each time."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ckptbench_probe.check import folders, points
from ckptbench_probe.check.asked import Asked, add_options, answered, asked, troubles
from ckptbench_probe.check.killing import END, FILE_EVENT, KILLED, RECORD
from ckptbench_probe.check.points import Point
from ckptbench_probe.check.restored import broken, start_of
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.check.runs import run as run_once
from ckptbench_probe.check.states import ranks
from ckptbench_probe.harmless import TOLD
from ckptbench_probe.reading import Event, traces
from ckptbench_probe.variables import END_AT, KILL_AT, KILL_IN
from ckptbench_probe.words import counted, number_of

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

REPORT = "kill.json"
SAFE, TORN, CANNOT_TELL, LOSES = "safe", "torn", "cannot tell", "loses"
EXIT_CODES = {SAFE: 0, TORN: 1, CANNOT_TELL: 2, LOSES: 3}
RECORDED, CONTROL = "recorded", "control"


def add(verbs: Verbs) -> None:
    own = verbs.add_parser(
        "kill",
        help="whether a kill during a save leaves a whole checkpoint",
        usage="ckptbench-probe check kill [options] -- COMMAND ... {folder} ...",
        description="Records what one save does to files. Then, for some events (--all: each): runs the training, kills it there by SIGKILL, and resumes it. "
        f"Exit codes: {', '.join(f'{code} {verdict}' for verdict, code in EXIT_CODES.items())} (the resume begins at 0).",
    )
    own.add_argument(
        "--save",
        type=number_of("saves"),
        default=3,
        metavar="N",
        help="which save; the training needs one more; default: %(default)s, so that an old one may be removed",
    )
    own.add_argument(
        "--all",
        action="store_true",
        help="kill at every event of every rank; default: at some of them",
    )
    add_options(own, REPORT)


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


def run(options: argparse.Namespace) -> int:
    return answered(options, REPORT, lambda: _judged(options))


def _judged(options: argparse.Namespace) -> tuple[Asked, Verdict, dict[str, Any]]:
    own = asked(options, "check kill")
    if folders.in_store([own.command, own.again]):
        raise folders.FolderError(
            "check kill ends runs at events of files, which a store does not show: use a local folder, or check resume, which kills between two saves"
        )
    with folders.kept(own.output, own.folder.name):
        verdict = _Check(own, options.save).made(whole=options.all)
        found = troubles(own.folder)
        if found and verdict.code == 0:
            verdict = cannot_tell(f"a part of the check is missing ({found[0]})")
    return own, verdict, {"save": options.save, **asdict(verdict)}


class _Check:
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
        if not recorded.at_update:
            return cannot_tell(
                f"the training makes fewer than {self._save + 1} saves in the folder by an engine that the probe knows: name an earlier one by --save, or save more often"
            )
        self._limit_s = self._own.limit_after(recorded)
        begin, end = _updates(recorded)[self._save - 1 :][:2]
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
        return _verdict(found, self._save, begin)

    def _killed(self, number: int, point: Point) -> Outcome:
        name = f"killed-{number}"
        print(f"{TOLD}killed {point.name} ...", file=sys.stderr, flush=True)
        ended = self._run(name, f"{self._window} {point.told}")
        if not ended.at_update or _ended_at(ended)[0]["what"] == END:
            return Outcome(point.name, CANNOT_TELL, "this time the save had no such event")
        return self._resumed(name, ended, point.name)

    def _run(self, name: str, at: str) -> Ended:
        folders.set_aside(self._own.output, f"{self._own.folder.name}-{self._before}")
        self._before = name
        place = self._own.checkpoints(name)
        told = {KILL_IN: str(self._own.output or place), KILL_AT: at}
        return self._start(name, folders.placed(self._own.command, place), told)

    def _start(self, name: str, command: list[str], told: dict[str, str]) -> Ended:
        return run_once(
            command, self._own.folder / name, check="resume", limit_s=self._limit_s, told=told
        )

    def _resumed(self, name: str, killed: Ended, point: str) -> Outcome:
        command = folders.placed(self._own.again, self._own.checkpoints(name))
        again = self._start(f"{name}-resumed", command, {END_AT: "1"})
        before, after = ranks(killed.folder), ranks(again.folder)
        start = start_of(before, after)
        why = broken(before, after, start, again)
        if why:
            return Outcome(point, TORN, why)
        if not isinstance(start, int):
            return Outcome(point, CANNOT_TELL, "its state is that of several updates")
        if not start:
            return Outcome(point, LOSES, "it begins again at 0: no checkpoint was left", 0)
        return Outcome(point, SAFE, f"resumed from {start}", start)


def _updates(run: Ended) -> list[int]:
    """After which saves began, the one among them that ended the run."""
    end, events = _ended_at(run)
    return sorted({end["updates"], *(one["updates"] for one in events if one["event"] == "save")})


def _ended_at(run: Ended) -> tuple[Event, list[Event]]:
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


def _verdict(found: list[Outcome], save: int, update: int) -> Verdict:
    bad = [one for one in found if one.verdict in (TORN, LOSES)]
    unknown = [one for one in found if one.verdict == CANNOT_TELL]
    worst = min((one.verdict for one in bad), key=[TORN, LOSES].index, default=CANNOT_TELL if unknown else SAFE)  # fmt: skip
    where = f"of {counted(len(found), 'kill')} in save {save}, of update {update},"
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
