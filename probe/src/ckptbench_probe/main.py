"""The command `ckptbench-probe`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckptbench_probe import __version__
from ckptbench_probe.answer import Overrides
from ckptbench_probe.ending import summarize, wait_for_ranks
from ckptbench_probe.explicit import DEFAULT_FOLDER
from ckptbench_probe.harmless import harmless, say
from ckptbench_probe.launcher import (
    CannotStartError,
    end_as,
    environment,
    how_failed,
    launch,
    run_name,
    words_of,
)
from ckptbench_probe.programs import PROGRAMS
from ckptbench_probe.syscalls import StraceRecorder, obstacle
from ckptbench_probe.variables import task_of_slurm
from ckptbench_probe.words import number_of, seconds

COMPARE, CHECK = "compare", "check"
"""Verbs with packages of their own."""
_GIVEN = "given options"


class _Once(argparse.Action):
    """Stores a value, and refuses a second one: argparse would take the last without a word."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault(_GIVEN, set())
        if option_string is not None and self.dest in given:
            parser.error(f"{option_string} is given twice: give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """Whose options are given once, also those of its verbs."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.register("action", None, _Once)


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Of all verbs, or of the one that `words` begin with: the code of the others takes longer to load than `run` needs to start."""
    top: argparse.ArgumentParser = _Parser(
        "ckptbench-probe",
        description="What the checkpoints of your own training cost, and how often it should save.",
    )
    top.add_argument("--version", action="version", version=__version__)
    verbs = top.add_subparsers(
        dest="verb", required=True, metavar="run | summary | compare | check"
    )
    overrides = _Parser(add_help=False)
    overrides.add_argument(
        "--gpus",
        type=number_of("GPUs"),
        help="compute the answer for that number of GPUs; default: the number of ranks",
    )
    overrides.add_argument(
        "--mtbf",
        type=seconds,
        help="mean time between failures of the job, as 14h; how often to save depends on it",
    )
    overrides.add_argument(
        "--restart",
        type=seconds,
        help="from a failure until training continues, as 8min; default: as long as this start took",
    )
    paste = _Parser(add_help=False)
    paste.add_argument(
        "--for",
        dest="tool",
        choices=[*PROGRAMS],
        metavar="PROGRAM",
        help=f"with --mtbf: print what to paste into {', '.join(PROGRAMS)}",
    )
    run = verbs.add_parser(
        "run",
        parents=[overrides, paste],
        help="measure the checkpoints of a command",
        usage="ckptbench-probe run [options] -- COMMAND ...",
    )
    run.add_argument(
        "--folder",
        type=Path,
        default=Path(DEFAULT_FOLDER),
        help="folder for the measurements; default: %(default)s",
    )
    run.add_argument(
        "--syscalls",
        action="store_true",
        help="record syncs by strace, also those in C++ and Rust",
    )
    run.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="after --, as you start it today: torchrun, srun, mpirun, python, a script",
    )
    summary = verbs.add_parser(
        "summary", parents=[overrides, paste], help="report on a run that has ended or was killed"
    )
    summary.add_argument("folder", type=Path)
    summary.add_argument("--run", help="its name, if the folder has several; default: the last")
    named = words[0] if words and words[0] in (*verbs.choices, COMPARE, CHECK) else None
    if named in (None, COMPARE):
        from ckptbench_probe.comparing import verb

        verb.add(verbs, overrides)
    if named in (None, CHECK):
        from ckptbench_probe.check import verbs as checks

        checks.add(verbs, words[1:])
    return top


def main(words: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if words is None else words
    options = parser(words).parse_args(words)
    if options.verb == CHECK:
        from ckptbench_probe.check import verbs as checks

        sys.exit(checks.run(options))
    overrides = Overrides(
        gpus=options.gpus,
        mtbf_s=options.mtbf,
        restart_s=options.restart,
        tool=getattr(options, "tool", None),
    )
    if options.verb == COMPARE:
        from ckptbench_probe.comparing import verb

        sys.exit(verb.run(options, overrides))
    if options.verb == "summary":
        sys.exit(0 if summarize(options.folder, run=options.run, overrides=overrides) else 1)
    command = words_of(options.command)
    if not command:
        parser(words).error(
            "no command: write it after --, as in ckptbench-probe run -- torchrun train.py"
        )
    try:
        run(options.folder.resolve(), command, overrides, syscalls=options.syscalls)
    except CannotStartError as error:
        say(str(error))
        sys.exit(error.code)


def run(folder: Path, command: list[str], overrides: Overrides, *, syscalls: bool = False) -> None:
    """The command runs, whatever becomes of the measurement; this process ends as it does."""
    obstacle = _obstacle(folder)
    if obstacle is not None:
        say(f"{folder} cannot be written to ({obstacle}): the command runs without being measured")
        end_as(launch(command, os.environ))
    name, own = run_name(), task_of_slurm(os.environ)
    if own is None or own.rank == 0:
        harmless(overrides.keep)(folder, name)
    strace = _recorder(folder, name) if syscalls else None
    status = launch(command, environment(os.environ, folder, name), strace)
    if own is None or own.rank == 0:
        if own is not None:
            harmless(wait_for_ranks)(folder, name, own.ranks)
        harmless(summarize)(folder, run=name, overrides=overrides, failed=how_failed(status))
    end_as(status)


def _recorder(folder: Path, run: str) -> StraceRecorder | None:
    reason = obstacle()
    if reason is None:
        return StraceRecorder(folder, run)
    say(f"--syscalls: {reason}: the command runs without it, and only syncs by Python are seen")
    return None


def _obstacle(folder: Path) -> str | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}"
        probe.write_bytes(b" ")
        probe.unlink()
    except OSError as error:
        return error.strerror
    return None


if __name__ == "__main__":
    main()
