"""What checks that start a training again are asked for: its command, the one that resumes it, and where its checkpoints go."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Protocol, TypeVar

from ckptbench_probe.check import folders
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.harmless import say
from ckptbench_probe.launcher import CannotStartError, run_name, words_of
from ckptbench_probe.reading import traces
from ckptbench_probe.storage import is_url
from ckptbench_probe.words import number_of

FORMAT = 1
CANNOT_TELL_CODE = 2
"""Exit code of all checks."""
SLOWER = 3.0
"""A run may take so many times the first one, and `LEAST_LIMIT_S` more."""
LEAST_LIMIT_S = 60.0
NOT_REFUSED = "cannot be refused"
"""A trouble that leaves no verdict at all."""


@dataclass(frozen=True)
class Asked:
    command: list[str]
    again: list[str]
    output: Path | None
    limit_s: float | None
    folder: Path
    """Of this check."""

    def checkpoints(self, run: str) -> Path:
        """Of a run of this name, where the command names no folder of its own."""
        return self.folder / f"checkpoints-{run}"

    def limit_after(self, first: Ended) -> float:
        """For runs that do as much as the first one, in seconds."""
        return self.limit_s or SLOWER * first.took_s + LEAST_LIMIT_S


class Judged(Protocol):
    """What a check has found."""

    @property
    def lines(self) -> tuple[str, ...]:
        """For the user, the point first."""

    @property
    def code(self) -> int:
        """Exit code."""


Found = TypeVar("Found", bound=Judged)


def add_save(own: argparse.ArgumentParser, needs: str) -> None:
    """`needs`: which saves the training must make."""
    own.add_argument(
        "--save",
        type=number_of("saves"),
        default=3,
        metavar="N",
        help=f"which save{needs}; default: %(default)s, so that an old one may be removed",
    )


def too_few(saves: int) -> str:
    """Why a check cannot tell where the training makes fewer."""
    return f"the training makes fewer than {saves} saves in the folder that the probe sees: name an earlier one by --save, or save more often"


def add_options(own: argparse.ArgumentParser, report: str) -> None:
    """`report`: the name of its file."""
    own.add_argument(
        "--resume",
        metavar="COMMAND",
        help="the command that resumes the training; default: the same command",
    )
    own.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="folder of its checkpoints, if it is hard-coded; it is renamed between the runs",
    )
    own.add_argument(
        "--timeout",
        type=_minutes,
        metavar="MINUTES",
        help="time limit of each run; default: three times the first run plus a minute",
    )
    own.add_argument(
        "--folder",
        type=Path,
        default=Path(folders.FOLDER),
        help=f"folder for the runs and {report}; default: %(default)s",
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
        raise argparse.ArgumentTypeError(f'"{text}" is no number of minutes')
    return found


def asked(options: argparse.Namespace, example: str) -> Asked:
    """`example`: the words before the command. Raises FolderError."""
    command = words_of(options.command)
    if not command:
        raise folders.FolderError(
            f"no command: write it after --, as in {example} -- python train.py --out {{folder}}"
        )
    try:
        again = shlex.split(options.resume) if options.resume else command
    except ValueError as error:
        raise folders.FolderError(
            f"--resume {options.resume}: {error}: correct its quotes"
        ) from error
    if options.output and is_url(str(options.output).replace(":/", "://", 1)):
        raise folders.FolderError(
            "--output names an object store, where no folder can be renamed: write {folder} in the command instead, as in --out s3://bucket/run/{folder}"
        )
    output = options.output.resolve() if options.output else None
    folders.require_apart([command, again], output)
    folder = (options.folder / run_name()).resolve()
    folder.mkdir(parents=True)
    limit_s = options.timeout * 60 if options.timeout else None
    return Asked(command, again, output, limit_s, folder)


def answered(
    options: argparse.Namespace,
    report: str,
    check: Callable[[], tuple[Asked, Judged, dict[str, Any]]],
) -> int:
    """The exit code of a check, which is told, and written to its report with what `check` returns beside."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        own, verdict, content = check()
    except (folders.FolderError, CannotStartError) as error:
        say(str(error))
        return CANNOT_TELL_CODE
    except KeyboardInterrupt:
        say("the check was interrupted; its runs have been ended")
        return CANNOT_TELL_CODE
    except OSError as error:
        say(
            f"{error.filename or options.folder}: {error.strerror}: name another folder by --folder"
        )
        return CANNOT_TELL_CODE
    print("\n".join(verdict.lines))
    path = options.folder / report
    whole = {
        "format": FORMAT, "exit_code": verdict.code, **content,
        "command": own.command, "resume_command": own.again, "runs": str(own.folder),
    }  # fmt: skip
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    store = folders.in_store([own.command, own.again])
    beside = f", their checkpoints in {store}/{own.folder.name}" if store else ""
    print(f"more: {path}; the runs lie in {own.folder}{beside}")
    return verdict.code


def complete(own: Asked, judged: Found, cannot_tell: Callable[[str], Found]) -> Found:
    """What a check has found, unless it is well and a part of the check is missing."""
    found = troubles(own.folder)
    if found and (judged.code == 0 or any(NOT_REFUSED in one for one in found)):
        return cannot_tell(f"a part of the check is missing ({found[0]})")
    return judged


def troubles(folder: Path) -> list[str]:
    """Errors of the check itself, in any of its runs."""
    every = [events for run in sorted(folder.iterdir()) for _, events in traces(run)]
    return [one["reason"] for events in every for one in events if one["event"] == "trouble"]
