"""`ckptbench-probe check resume`: kill a training at an update, start it again, and compare it with one that was not disturbed."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckptbench_probe.check import folders, other_ranks
from ckptbench_probe.check.asked import Asked, add_options, answered, asked, troubles
from ckptbench_probe.check.compare import Ranks
from ckptbench_probe.check.extent import unread
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.check.runs import run as run_once
from ckptbench_probe.check.seen import Seen
from ckptbench_probe.check.states import paths, ranks, saves
from ckptbench_probe.check.verdict import Verdict, cannot_tell, judge
from ckptbench_probe.harmless import TOLD
from ckptbench_probe.variables import DATA, END_AT, END_BEFORE, PARTS
from ckptbench_probe.words import number_of

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

REPORT = "resume.json"
UNDISTURBED, REPEATED, KILLED, RESUMED = "undisturbed", "undisturbed-again", "killed", "resumed"


def add(verbs: Verbs) -> None:
    own = verbs.add_parser(
        "resume",
        help="whether a resume after a kill gives back the same training",
        usage="ckptbench-probe check resume --kill-at N [options] -- COMMAND ... {folder} ...",
        description="Runs the training three times: undisturbed; killed after N updates; started again. Compares their states bit by bit. "
        "Exit codes: 0 same, 1 different or does not resume, 2 cannot tell.",
    )
    own.add_argument(
        "--kill-at",
        type=number_of("updates"),
        required=True,
        metavar="N",
        help="number of updates after which the training is killed; choose one between two saves",
    )
    own.add_argument(
        "--until",
        type=number_of("updates"),
        metavar="U",
        help="last update to compare, where runs are ended; default: twice --kill-at",
    )
    own.add_argument(
        "--data",
        action="store_true",
        help="also record the inputs of the model: shows whether a difference comes from the place in the data or from random states (PyTorch)",
    )
    own.add_argument(
        "--ranks",
        type=number_of("ranks"),
        metavar="N",
        help=f"with --resume-ranks: the number for {other_ranks.PLACE} in the command, as in torchrun --nproc-per-node {other_ranks.PLACE}",
    )
    own.add_argument(
        "--resume-ranks",
        type=number_of("ranks"),
        metavar="M",
        help="resume with M ranks, and compare the restored state, gathered from all of them (PyTorch)",
    )
    add_options(own, REPORT)


@dataclass(frozen=True)
class Plan:
    asked: Asked
    kill_at: int
    until: int
    data: bool = False
    ranks: int | None = None
    """None unless another number is to resume:"""
    resume_ranks: int | None = None

    @property
    def folder(self) -> Path:
        return self.asked.folder

    def run(self, name: str, *, limit_s: float | None, checkpoints: str | None = None) -> Ended:
        """`checkpoints`: the run whose folder it goes on in."""
        command = self.asked.again if checkpoints else self.asked.command
        if self.ranks is not None:
            number = self.resume_ranks if checkpoints else self.ranks
            command = [word.replace(other_ranks.PLACE, str(number)) for word in command]
        own = self.asked.checkpoints(checkpoints or name)
        print(f"{TOLD}{name} run ...", file=sys.stderr, flush=True)
        told = {END_AT: str(self.kill_at)} if name == KILLED else {END_BEFORE: str(self.until)}
        if self.ranks is not None:
            told = {**told, PARTS: "1"} if name == KILLED else {END_AT: "1", PARTS: "1"}
        ended = run_once(
            folders.placed(command, own),
            self.folder / name,
            check="resume",
            limit_s=limit_s,
            told={**told, DATA: "1" if self.data else ""},
        )
        if name != KILLED:
            folders.set_aside(self.asked.output, f"{self.folder.name}-{name}")
        return ended


def run(options: argparse.Namespace) -> int:
    return answered(options, REPORT, lambda: _judged(options))


def _judged(options: argparse.Namespace) -> tuple[Asked, Verdict, dict[str, Any]]:
    until = options.until or 2 * options.kill_at
    if until <= options.kill_at:
        raise folders.FolderError(
            f"--until {until} is not after --kill-at {options.kill_at}: nothing after the kill would be compared"
        )
    _require_ranks(options)
    own = asked(options, "check resume --kill-at 25")
    plan = Plan(own, options.kill_at, until, options.data, options.ranks, options.resume_ranks)
    with folders.kept(plan.asked.output, plan.folder.name):
        verdict = _check(plan) if plan.ranks is None else _check_other_ranks(plan)
        found = troubles(plan.folder)
        if found and verdict.code == 0:
            verdict = cannot_tell(f"a part of the check is missing ({found[0]})")
    return plan.asked, verdict, _content(plan, verdict)


def _check(plan: Plan) -> Verdict:
    undisturbed = plan.run(UNDISTURBED, limit_s=plan.asked.limit_s)
    if undisturbed.failed:
        return cannot_tell(f"the undisturbed run {undisturbed.reason()}")
    whole = ranks(undisturbed.folder)
    obstacle = _obstacle(whole, plan, undisturbed.last_line(TOLD))
    if obstacle is not None:
        return cannot_tell(obstacle)
    limit_s = plan.asked.limit_after(undisturbed)
    killed = plan.run(KILLED, limit_s=limit_s)
    if not killed.at_update:
        reason = killed.reason() if killed.failed else "it ended before"
        return cannot_tell(
            f"the run to be killed after update {plan.kill_at} did not get there ({reason})"
        )
    until_then = ranks(killed.folder)
    if until_then.keys() != whole.keys():
        return cannot_tell(
            f"{len(until_then)} of {len(whole)} ranks had made an update when the training was killed: choose a larger --kill-at"
        )
    again = plan.run(RESUMED, limit_s=limit_s, checkpoints=KILLED)
    return judge(
        Seen(
            whole,
            until_then,
            ranks(again.folder),
            plan.kill_at,
            saves(killed.folder),
            again.reason() if again.failed else None,
            repeat=lambda: ranks(plan.run(REPEATED, limit_s=limit_s).folder),
            whole_ended=not undisturbed.at_update,
            again_ended=not again.at_update,
            unread=unread(_checkpoints(plan), {*paths(killed.folder), *paths(again.folder)}),
            data=plan.data,
            until=plan.until,
        )
    )


def _require_ranks(options: argparse.Namespace) -> None:
    """Raises FolderError where another number of ranks cannot be started."""
    commands = [" ".join(options.command), *([options.resume] if options.resume else [])]
    has = [other_ranks.PLACE in command for command in commands]
    asked_for = [options.ranks is not None, options.resume_ranks is not None, *has]
    if any(asked_for[:2]) and not all(asked_for):
        raise folders.FolderError(
            f"another number of ranks needs --ranks, --resume-ranks, and {other_ranks.PLACE} in each command: --ranks 2 --resume-ranks 1 -- torchrun --nproc-per-node {other_ranks.PLACE} ..."
        )


def _check_other_ranks(plan: Plan) -> Verdict:
    """Without an undisturbed run: what was restored is compared with what was killed."""
    killed = plan.run(KILLED, limit_s=plan.asked.limit_s)
    if not killed.at_update:
        reason = killed.reason() if killed.failed else "it ended before"
        return cannot_tell(
            f"the run to be killed after update {plan.kill_at} did not get there ({reason})"
        )
    again = plan.run(RESUMED, limit_s=plan.asked.limit_after(killed), checkpoints=KILLED)
    return other_ranks.judge(
        other_ranks.Resharded(
            ranks(killed.folder),
            ranks(again.folder),
            plan.ranks or 1,
            plan.resume_ranks or 1,
            plan.kill_at,
            saves(killed.folder),
            again.reason() if again.failed else None,
        )
    )


def _checkpoints(plan: Plan) -> Path:
    """Where the resumed run has left its own."""
    if plan.asked.output is None:
        return plan.asked.checkpoints(KILLED)
    return folders.aside(plan.asked.output, f"{plan.folder.name}-{RESUMED}")


def _obstacle(whole: Ranks, plan: Plan, told: str) -> str | None:
    if not whole:
        hint = f" ({told})" if told else ""
        return f"no state was seen: it is read from optimizers of PyTorch, `fit` of Keras, Orbax's CheckpointManager, and sessions whose s.step(state=...) names it{hint}"
    if any(rank.attempts > 1 for rank in whole.values()):
        return "several processes claim to be the same rank, or the command restarts it itself: let it start each rank once"
    done = min(max(rank.after) for rank in whole.values())
    if done <= plan.kill_at:
        return f"the undisturbed run has {done} updates: choose a smaller --kill-at than {plan.kill_at}"
    return None


def _content(plan: Plan, verdict: Verdict) -> dict[str, Any]:
    """Of resume.json. Updates count from the begin of the undisturbed run."""
    return {
        **asdict(verdict),
        "kill_at": plan.kill_at,
        "until": plan.until,
        "lost_updates": None
        if verdict.resumed_from is None
        else plan.kill_at - verdict.resumed_from,
    }
