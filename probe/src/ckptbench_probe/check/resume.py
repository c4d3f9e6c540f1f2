"""`ckptbench-probe check resume`: kill a training at an update, start it again, and compare it with one that was not disturbed."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckptbench_probe.check import folders
from ckptbench_probe.check.compare import Ranks
from ckptbench_probe.check.extent import unread
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.check.runs import run as run_once
from ckptbench_probe.check.seen import Seen
from ckptbench_probe.check.states import paths, ranks, saves
from ckptbench_probe.check.verdict import CANNOT_TELL, EXIT_CODES, Verdict, cannot_tell, judge
from ckptbench_probe.harmless import TOLD, say
from ckptbench_probe.launcher import CannotStartError, run_name, words_of
from ckptbench_probe.reading import traces
from ckptbench_probe.variables import DATA, END_AT, END_BEFORE
from ckptbench_probe.words import number_of

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

FORMAT = 1
REPORT = "resume.json"
SLOWER = 3.0
"""A run may take so many times the undisturbed one, and `LEAST_LIMIT_S` more."""
LEAST_LIMIT_S = 60.0
UNDISTURBED, REPEATED, KILLED, RESUMED = "undisturbed", "undisturbed-again", "killed", "resumed"


def add(verbs: Verbs) -> None:
    own = verbs.add_parser(
        "resume",
        help="whether a resume after a kill gives back the same training",
        usage="ckptbench-probe check resume --kill-at N [options] -- COMMAND ... {folder} ...",
        description="Runs the training three times: undisturbed; killed after N updates; started again. Compares their states bit by bit. "
        f"Exit codes: {', '.join(f'{code} {verdict}' for verdict, code in EXIT_CODES.items())}.",
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
        "--resume",
        metavar="COMMAND",
        help="the command that resumes the training; default: the same command",
    )
    own.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="folder of its checkpoints, if the program fixes it; it is renamed between the runs",
    )
    own.add_argument(
        "--data",
        action="store_true",
        help="also record the inputs of the model, to separate the place in the data from random states (PyTorch)",
    )
    own.add_argument(
        "--timeout",
        type=_minutes,
        metavar="MINUTES",
        help="time limit of each run; default: three times the undisturbed run, and a minute",
    )
    own.add_argument(
        "--folder",
        type=Path,
        default=Path(folders.FOLDER),
        help="folder for the runs and resume.json; default: %(default)s",
    )
    own.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="after --, with {folder} for its folder of checkpoints",
    )


def _minutes(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of minutes')
    return found


@dataclass(frozen=True)
class Plan:
    command: list[str]
    again: list[str]
    kill_at: int
    until: int
    output: Path | None
    limit_s: float | None
    folder: Path
    """Of this check."""
    data: bool = False

    def run(self, name: str, *, limit_s: float | None, checkpoints: str | None = None) -> Ended:
        """`checkpoints`: the run whose folder it goes on in."""
        command = self.again if checkpoints else self.command
        own = self.folder / f"checkpoints-{checkpoints or name}"
        print(f"{TOLD}{name} run ...", file=sys.stderr, flush=True)
        told = {END_AT: str(self.kill_at)} if name == KILLED else {END_BEFORE: str(self.until)}
        ended = run_once(
            folders.placed(command, own),
            self.folder / name,
            check="resume",
            limit_s=limit_s,
            told={**told, DATA: "1" if self.data else ""},
        )
        if name != KILLED:
            folders.set_aside(self.output, f"{self.folder.name}-{name}")
        return ended


def run(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plan = _plan(options)
        with folders.kept(plan.output, plan.folder.name):
            verdict = _check(plan)
            troubles = _troubles(plan.folder)
            if troubles and verdict.code == 0:
                verdict = cannot_tell(f"a part of the check is missing ({troubles[0]})")
    except (folders.FolderError, CannotStartError) as error:
        say(str(error))
        return EXIT_CODES[CANNOT_TELL]
    except KeyboardInterrupt:
        say("the check was interrupted; its runs have been ended")
        return EXIT_CODES[CANNOT_TELL]
    except OSError as error:
        say(
            f"{error.filename or options.folder}: {error.strerror}: name another folder by --folder"
        )
        return EXIT_CODES[CANNOT_TELL]
    print("\n".join(verdict.lines))
    report = options.folder / REPORT
    report.write_text(json.dumps(_content(plan, verdict), indent=1) + "\n", encoding="utf-8")
    print(f"more: {report}; the runs lie in {plan.folder}")
    return verdict.code


def _troubles(folder: Path) -> list[str]:
    """Errors of the check itself, in any of its runs."""
    every = [events for run in sorted(folder.iterdir()) for _, events in traces(run)]
    return [one["reason"] for events in every for one in events if one["event"] == "trouble"]


def _plan(options: argparse.Namespace) -> Plan:
    command = words_of(options.command)
    if not command:
        raise folders.FolderError(
            "no command: write it after --, as in check resume --kill-at 25 -- python train.py --out {folder}"
        )
    try:
        again = shlex.split(options.resume) if options.resume else command
    except ValueError as error:
        raise folders.FolderError(
            f"--resume {options.resume}: {error}: correct its quotes"
        ) from error
    until = options.until or 2 * options.kill_at
    if until <= options.kill_at:
        raise folders.FolderError(
            f"--until {until} is not after --kill-at {options.kill_at}: nothing after the kill would be compared"
        )
    output = options.output.resolve() if options.output else None
    folders.require_apart([command, again], output)
    folder = (options.folder / run_name()).resolve()
    folder.mkdir(parents=True)
    limit_s = options.timeout * 60 if options.timeout else None
    return Plan(command, again, options.kill_at, until, output, limit_s, folder, options.data)


def _check(plan: Plan) -> Verdict:
    undisturbed = plan.run(UNDISTURBED, limit_s=plan.limit_s)
    if undisturbed.failed:
        return cannot_tell(f"the undisturbed run {undisturbed.reason()}")
    whole = ranks(undisturbed.folder)
    obstacle = _obstacle(whole, plan, undisturbed.last_line(TOLD))
    if obstacle is not None:
        return cannot_tell(obstacle)
    limit_s = plan.limit_s or SLOWER * undisturbed.took_s + LEAST_LIMIT_S
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


def _checkpoints(plan: Plan) -> Path:
    """Where the resumed run has left its own."""
    if plan.output is None:
        return plan.folder / f"checkpoints-{KILLED}"
    return folders.aside(plan.output, f"{plan.folder.name}-{RESUMED}")


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
        "format": FORMAT,
        "exit_code": verdict.code,
        **asdict(verdict),
        "kill_at": plan.kill_at,
        "until": plan.until,
        "lost_updates": None
        if verdict.resumed_from is None
        else plan.kill_at - verdict.resumed_from,
        "command": plan.command,
        "resume_command": plan.again,
        "runs": str(plan.folder),
    }
