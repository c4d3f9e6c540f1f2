"""`ckptbench-probe check stop`: send a training the signal of a scheduler after an update, and start it again."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ckptbench_probe.check import folders, signals
from ckptbench_probe.check.asked import Asked, add_options, answered, asked, complete
from ckptbench_probe.check.runs import run as run_once
from ckptbench_probe.check.stopped import EXIT_CODES, Stop, Verdict, cannot_tell, judge, seen
from ckptbench_probe.harmless import TOLD
from ckptbench_probe.variables import END_AT, STOP_AT
from ckptbench_probe.words import number_of, seconds

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

REPORT = "stop.json"
STOPPED, RESUMED = "stopped", "resumed"
SIGNALS = ("TERM", "USR1", "INT")


def add(verbs: Verbs) -> None:
    own = verbs.add_parser(
        "stop",
        help="whether it saves when a scheduler stops it",
        usage="ckptbench-probe check stop [options] -- COMMAND ... {folder} ...",
        description="Sends the training a signal after an update, and SIGKILL at the end of the grace. Then starts it again, and looks where it continues. "
        f"Exit codes: {', '.join(f'{code} {verdict}' for verdict, code in EXIT_CODES.items())}.",
    )
    own.add_argument(
        "--at",
        type=number_of("updates"),
        default=25,
        metavar="N",
        help="updates after which the signal comes; choose one between two saves; default: %(default)s",
    )
    own.add_argument(
        "--signal", choices=SIGNALS, default="TERM", help="which signal; default: %(default)s"
    )
    own.add_argument(
        "--to",
        choices=(signals.LAUNCHER, signals.RANKS, signals.ALL),
        default=signals.LAUNCHER,
        help="who gets it. launcher: only the command, as Kubernetes and Slurm's --signal=B:TERM do; ranks: only the training processes; all: both, as Slurm's time limit and scancel do, and sbatch --signal=TERM if srun starts the command; default: %(default)s",
    )
    own.add_argument(
        "--grace",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="from the signal to SIGKILL, as 30s or 2min; default: 60s",
    )
    add_options(own, REPORT)


def run(options: argparse.Namespace) -> int:
    return answered(options, REPORT, lambda: _judged(options))


def _judged(options: argparse.Namespace) -> tuple[Asked, Verdict, dict[str, Any]]:
    own = asked(options, "check stop")
    stop = Stop(options.at, f"SIG{options.signal}", options.to, options.grace)
    with folders.kept(own.output, own.folder.name):
        verdict = _check(own, stop)
        verdict = complete(own, verdict, cannot_tell)
    return own, verdict, {**asdict(stop), **asdict(verdict)}


def _check(own: Asked, stop: Stop) -> Verdict:
    place = own.checkpoints(STOPPED)
    _tell(f"{STOPPED} run ...")
    found = signals.run(
        folders.placed(own.command, place),
        own.folder / STOPPED,
        number=signal.Signals[stop.signal],
        to=stop.to,
        grace_s=stop.grace_s,
        limit_s=own.limit_s,
        checkpoints=own.output or place,
        told={STOP_AT: str(stop.at)},
    )
    if not found.sent:
        reason = found.run.reason() if found.run.failed else "it ended before"
        return cannot_tell(
            f"the training did not get to update {stop.at} ({reason}): choose a smaller --at, below its last update"
        )
    _tell(f"{RESUMED} run ...")
    again = run_once(
        folders.placed(own.again, place),
        own.folder / RESUMED,
        check="resume",
        limit_s=own.limit_after(found.run),
        told={END_AT: "1"},
    )
    return judge(stop, found, seen(found.run.folder), again)


def _tell(text: str) -> None:
    print(f"{TOLD}{text}", file=sys.stderr, flush=True)
