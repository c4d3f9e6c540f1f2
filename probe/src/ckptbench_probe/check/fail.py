"""`ckptbench-probe check fail`: refuse one of a training's saves, as a full disk or an object store does, and look at what is left and how it goes on."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ckptbench_probe.check import failed, folders, kill, outcomes
from ckptbench_probe.check.asked import (
    Asked,
    add_options,
    add_save,
    answered,
    asked,
    complete,
    too_few,
)
from ckptbench_probe.check.failed import EXIT_CODES, Failure, Refused, Verdict, cannot_tell
from ckptbench_probe.check.killing import RECORD
from ckptbench_probe.check.refused_calls import ERRORS
from ckptbench_probe.check.refusing import refused
from ckptbench_probe.check.refusing_store import REASONS
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.harmless import TOLD
from ckptbench_probe.variables import FAIL_AT

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

REPORT = "fail.json"
UNDISTURBED, CONTROL, LATER = "undisturbed", "control", "later"
ALL = "all"
UNBUFFERED = "PYTHONUNBUFFERED"
"""What a program has printed is seen though it is killed."""


def add(verbs: Verbs) -> None:
    own = verbs.add_parser(
        "fail",
        help="what happens to training and checkpoints when a full disk, or an object store, refuses a save",
        usage="ckptbench-probe check fail [options] -- COMMAND ... {folder} ...",
        description="Refuses what one save writes below the folder, or through fsspec below a URL, on every rank, and resumes the training from what is left. If training continues, it resumes again after the next save. Needs Linux 5.7. "
        f"Exit codes: {', '.join(f'{code} {verdict}' for verdict, code in EXIT_CODES.items())}.",
    )
    add_save(own, "; the training needs two more")
    own.add_argument(
        "--as",
        dest="kind",
        choices=(*ERRORS, *REASONS, ALL),
        help="full: no space after half of the save; quota: the same, as a quota says it; unwritable: no file is made or removed; of an object store, 503: it takes no upload; 403: it takes none and removes nothing; all: each in turn; default: full, or 503",
    )
    add_options(own, REPORT)


def run(options: argparse.Namespace) -> int:
    return answered(options, REPORT, lambda: _judged(options))


def _judged(options: argparse.Namespace) -> tuple[Asked, Verdict, dict[str, Any]]:
    own = asked(options, "check fail")
    kinds = _kinds(own, options.kind)
    with folders.kept(own.output, own.folder.name):
        verdict = _Check(own, options.save).made_as(kinds)
        verdict = complete(own, verdict, cannot_tell)
    return own, verdict, {"save": options.save, **asdict(verdict)}


def _kinds(own: Asked, kind: str | None) -> tuple[str, ...]:
    """Raises FolderError for one that the place of the checkpoints does not know."""
    url = folders.in_store([own.command, own.again])
    known, others = (REASONS, ERRORS) if url else (ERRORS, REASONS)
    if kind in others:
        place, instead = ("a folder", "an object store") if url else ("an object store", "a folder")
        raise folders.FolderError(
            f"--as {kind} is for {place}, and these checkpoints go to {instead}: use --as {', '.join(known)} or {ALL}"
        )
    return tuple(known) if kind == ALL else (kind or next(iter(known)),)


class _Check(kill.Check):
    """The updates after which saves begin are those of the undisturbed run."""

    def made_as(self, kinds: tuple[str, ...]) -> Verdict:
        undisturbed = self._run(UNDISTURBED, f"{RECORD} {self._save + 1}")
        if undisturbed.failed:
            return cannot_tell(f"the undisturbed training {undisturbed.reason()}")
        saves = [0, *kill.saves_begun(undisturbed)]
        if len(saves) <= self._save + 2:
            return cannot_tell(too_few(self._save + 2))
        self._limit_s = self._own.limit_after(undisturbed)
        control = self._resumed(UNDISTURBED, undisturbed, UNDISTURBED)
        if control.verdict != outcomes.SAFE:
            # It was ended as a save began, which may remove older ones first.
            before = self._run(CONTROL, " ".join(map(str, saves[self._save :][:2])))
            control = self._resumed(CONTROL, before, CONTROL)
        if control.verdict != outcomes.SAFE:
            return cannot_tell(
                f"undisturbed, it is not resumed from a whole update either ({control.text}): run check resume first"
            )
        found = [self._failure(kind, saves, undisturbed) for kind in kinds]
        return failed.verdict(found, self._save, saves[self._save])

    def _failure(self, kind: str, saves: list[int], undisturbed: Ended) -> Failure:
        older, begin, following, end = saves[self._save - 1 :][:4]
        at = f"{kind} {begin} {following} {self._save - 1}"

        def tried(name: str, until: int) -> tuple[Ended, outcomes.Outcome]:
            print(f"{TOLD}{name} run ...", file=sys.stderr, flush=True)
            more = {FAIL_AT: at, UNBUFFERED: "1"}
            run = self._run(name, f"{begin} {until}", **more)
            return run, self._resumed(name, run, name)

        run, resumed = tried(kind, following)
        message = failed.message(run, undisturbed, kind)
        found = failed.judge(Refused(kind, self._save, older, run, refused(run.folder), resumed, message))  # fmt: skip
        if not run.at_update or found.verdict not in (failed.SAFE, failed.SILENT):
            return found
        run, resumed = tried(f"{kind}-{LATER}", end)
        message = failed.message(run, undisturbed, kind)
        return failed.later(found, run, resumed, message, self._save)
