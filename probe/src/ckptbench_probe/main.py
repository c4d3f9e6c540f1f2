"""The command `ckptbench-probe`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ckptbench_probe import __version__
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
from ckptbench_probe.options import Parser, overrides_of, with_overrides
from ckptbench_probe.programs import PROGRAMS
from ckptbench_probe.syscalls import StraceRecorder
from ckptbench_probe.syscalls import obstacle as strace_obstacle
from ckptbench_probe.variables import task_of_slurm

if TYPE_CHECKING:
    from ckptbench_probe.answer import Overrides
    from ckptbench_probe.options import Verbs

LOADED = {"compare": "comparing.verb", "check": "check.verbs"}
"""The modules of verbs that are loaded only where they are named, as `run` would wait for them."""


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """`words` is the command line. If it begins with a verb, the other verbs of LOADED are left out."""
    top: argparse.ArgumentParser = Parser(
        "ckptbench-probe",
        description="What the checkpoints of your own training cost, and how often it should save.",
    )
    top.add_argument("--version", action="version", version=__version__)
    verbs = top.add_subparsers(
        dest="verb", required=True, metavar="run | summary | compare | check"
    )
    paste = Parser(add_help=False)
    paste.add_argument(
        "--for",
        dest="tool",
        choices=[*PROGRAMS],
        metavar="PROGRAM",
        help=f"with --mtbf: print what to paste into {', '.join(PROGRAMS)}",
    )
    run = verbs.add_parser(
        "run",
        parents=[with_overrides(), paste],
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
        "summary",
        parents=[with_overrides(), paste],
        help="report on a run that has ended or was killed",
    )
    summary.add_argument("folder", type=Path)
    summary.add_argument("--run", help="its name, if the folder has several; default: the last")
    named = [name for name in words[:1] if name in (*verbs.choices, *LOADED)]
    for name in LOADED:
        if named in ([], [name]):
            _load(name).add(verbs, words[1:])
    return top


class _Verb(Protocol):
    def add(self, verbs: Verbs, words: Sequence[str], /) -> None:
        """Add the parser of the verb. `words` are those behind it on the command line."""

    def run(self, options: argparse.Namespace) -> int:
        """Returns the exit code."""


def _load(name: str) -> _Verb:
    module: Any = import_module(f"ckptbench_probe.{LOADED[name]}")
    return cast("_Verb", module)


def main(words: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if words is None else words
    options = parser(words).parse_args(words)
    if options.verb in LOADED:
        sys.exit(_load(options.verb).run(options))
    overrides = overrides_of(options)
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
    refused = _unwritable(folder)
    if refused is not None:
        say(f"{folder} cannot be written to ({refused}): the command runs without being measured")
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
    reason = strace_obstacle()
    if reason is None:
        return StraceRecorder(folder, run)
    say(f"--syscalls: {reason}: the command runs without it, and only syncs by Python are seen")
    return None


def _unwritable(folder: Path) -> str | None:
    """Why nothing can be written there; None where it can."""
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
