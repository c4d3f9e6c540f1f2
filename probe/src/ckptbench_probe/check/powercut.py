"""`ckptbench-probe check powercut`: resume a training from what a power cut during one of its saves may leave on the disk."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ckptbench_probe import syscalls
from ckptbench_probe.check import cuts, file_calls, folders
from ckptbench_probe.check.asked import (
    Asked,
    add_options,
    add_save,
    answered,
    asked,
    complete,
    too_few,
)
from ckptbench_probe.check.disk import Recorded, as_on_disk
from ckptbench_probe.check.disk_reader import Reader
from ckptbench_probe.check.kill import RECORDED, saves_begun
from ckptbench_probe.check.killing import RECORD, UPDATED
from ckptbench_probe.check.left import Left, Storage
from ckptbench_probe.check.outcomes import (  # fmt: skip
    EXIT_CODES,
    SAFE,
    Outcome,
    Verdict,
    cannot_tell,
    outcome,
    verdict,
)
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.check.runs import run as run_once
from ckptbench_probe.harmless import TOLD
from ckptbench_probe.variables import END_AT, KILL_AT, KILL_IN

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

REPORT = "powercut.json"
BEFORE, AFTER = "before", "after"


def add(verbs: Verbs) -> None:
    own = verbs.add_parser(
        "powercut",
        help="whether a power cut during a save leaves a whole checkpoint",
        usage="ckptbench-probe check powercut [options] -- COMMAND ... {folder} ...",
        description="Records by strace what one save writes, renames and syncs. Then makes the folders that a power cut may leave of it (--all: at each change), and resumes the training from each. "
        "What was done before that save is taken to be on the disk. "
        f"Exit codes: {', '.join(f'{code} {verdict}' for verdict, code in EXIT_CODES.items())} (the resume begins at 0).",
    )
    add_save(own, ", from the second on; the training needs one more")
    own.add_argument(
        "--filesystem",
        choices=list(cuts.SYSTEMS),
        default="any",
        help="what leaves the folders; default: %(default)s",
    )
    own.add_argument(
        "--all",
        action="store_true",
        help=f"cut at every change of a name or size, and lose each file's data; default: {cuts.MOST} cuts at most",
    )
    add_options(own, REPORT)


def run(options: argparse.Namespace) -> int:
    return answered(options, REPORT, lambda: _judged(options))


def _judged(options: argparse.Namespace) -> tuple[Asked, Verdict, dict[str, Any]]:
    own = asked(options, "check powercut")
    folders.require_local([own.command, own.again], "check powercut")
    obstacle = syscalls.obstacle()
    if obstacle is not None:
        raise folders.FolderError(
            f"{obstacle}: check powercut needs strace (as by apt install strace), and leave to trace (in a container, --cap-add SYS_PTRACE)"
        )
    with folders.kept(own.output, own.folder.name):
        check = _Check(own, options.save, cuts.SYSTEMS[options.filesystem])
        try:
            judged = check.made(whole=options.all)
        finally:
            check.log.unlink(missing_ok=True)
        judged = complete(own, judged, cannot_tell)
    content = {"save": options.save, "filesystem": options.filesystem, **asdict(judged)}
    return own, judged, content


class _Check:
    def __init__(self, own: Asked, save: int, systems: tuple[str, ...]) -> None:
        self._own, self._save, self._systems = own, save, systems
        self._limit_s = own.limit_s
        self._place = (own.output or own.checkpoints(RECORDED)).resolve()
        """Of all runs: paths within checkpoints stay true."""
        self._before = RECORDED
        """Run whose checkpoints lie there."""
        self.log = own.folder / "strace.txt"

    def made(self, *, whole: bool) -> Verdict:
        """`whole`: at every change."""
        recorded = self._recorded()
        if recorded.failed:
            return cannot_tell(f"the training that was recorded {recorded.reason()}")
        saves = saves_begun(recorded)
        if len(saves) <= self._save:
            return cannot_tell(too_few(self._save + 1))
        self._limit_s = self._own.limit_after(recorded)
        update, following = saves[self._save - 1 :][:2]
        reader = Reader(self.log, str(recorded.folder))
        window = [reader.found.marks.get(f"{UPDATED}{one}", 0) for one in (update, following)]
        if not all(window):
            return cannot_tell("strace has not seen the ranks: start all of them on this machine")
        with self.log.open("rb") as log:
            unknown = as_on_disk(reader.found, reader.names, self._place, log)
        if unknown:
            return cannot_tell(unknown)
        return self._tried(recorded, reader.found, (window[0], window[1]), update, whole=whole)

    def _tried(
        self, recorded: Ended, found: Recorded, window: tuple[int, int], update: int, *, whole: bool
    ) -> Verdict:
        storage = Storage(found, self._systems[0], self._place, window)
        if not storage.changed:
            return cannot_tell(f"save {self._save} changed no file that strace saw")
        whole_before, whole_after = (Left(at, at) for at in window)
        before = self._resumed(recorded, BEFORE, "before the save", storage, whole_before)
        after = self._resumed(recorded, AFTER, "after the save", storage, whole_after)
        for control, remedy in ((before, "name a later save by --save"), (after, "run check resume first")):  # fmt: skip
            if control.verdict != SAFE:
                return cannot_tell(
                    f"{control.point}, with nothing lost, it is not resumed from a whole update either ({control.text}): {remedy}"
                )
        every = cuts.cuts(found, self._systems, self._place, window, whole=whole)
        known = {
            storage.key(left): one for left, one in ((whole_before, before), (whole_after, after))
        }
        outcomes = [
            replace(known[cut.key], point=cut.name)
            if cut.key in known
            else self._resumed(recorded, f"cut-{number}", cut.name, cut.storage, cut.left)
            for number, cut in enumerate(every, 1)
        ]
        return verdict(outcomes, "power cut", self._save, update)

    def _recorded(self) -> Ended:
        command = folders.placed(self._own.command, self._place)
        told = {KILL_IN: str(self._place), KILL_AT: f"{RECORD} {self._save}"}
        return self._start(RECORDED, file_calls.around(command, self.log), told)

    def _start(self, name: str, command: list[str], told: dict[str, str]) -> Ended:
        return run_once(
            command, self._own.folder / name, check="resume", limit_s=self._limit_s, told=told
        )

    def _resumed(
        self, recorded: Ended, name: str, point: str, storage: Storage, left: Left
    ) -> Outcome:
        """From what this cut has left, which then lies beside."""
        print(f"{TOLD}{point} ...", file=sys.stderr, flush=True)
        folders.set_aside(self._place, f"{self._own.folder.name}-{self._before}")
        self._before = name
        with self.log.open("rb") as log:
            storage.make(left, self._place, log)
        command = folders.placed(self._own.again, self._place)
        return outcome(point, recorded, self._start(f"{name}-resumed", command, {END_AT: "1"}))
