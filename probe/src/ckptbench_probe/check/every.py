"""`ckptbench-probe check all`: one check after the other, and a line of yes or no for each."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckptbench_probe.check import folders, junit
from ckptbench_probe.check.asked import CANNOT_TELL_CODE, FORMAT, Asked, add_options, asked
from ckptbench_probe.check.other_ranks import PLACE
from ckptbench_probe.check.processes import adopt_orphans
from ckptbench_probe.check.questions import (
    CANNOT_TELL,
    DOES_NOT_APPLY,
    NO,
    QUESTIONS,
    Answer,
    Question,
    Report,
)
from ckptbench_probe.check.rhythm import NotApplicableError, Rhythm, updates_between
from ckptbench_probe.check.runs import LOG, started
from ckptbench_probe.harmless import TOLD, say
from ckptbench_probe.launcher import CannotStartError
from ckptbench_probe.words import number_of

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

REPORT = "all.json"
PROGRAM, RANKS = "ckptbench-probe", "--ranks"
SOURCE = Path(__file__).resolve().parents[2]
"""Where this package lies, also for a Python that takes no word of the environment."""
START = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from ckptbench_probe.main import main; main()"


def add(verbs: Verbs) -> None:
    own = verbs.add_parser(
        "all",
        help="all checks, and a line of yes or no for each",
        usage="ckptbench-probe check all [options] -- COMMAND ... {folder} ...",
        description="Runs the checks one after the other; a first run shows how often the training saves. Exit codes: 1 an answer is no, 2 none is no but one cannot tell, 0 otherwise.",
    )
    own.add_argument(
        "--only",
        type=_names,
        default=tuple(QUESTIONS),
        metavar="NAMES",
        help=f"some of {','.join(QUESTIONS)}",
    )
    own.add_argument(
        "--every",
        type=number_of("updates"),
        metavar="N",
        help="updates between two saves; default: as check saves finds",
    )
    own.add_argument(
        "--epoch",
        type=number_of("updates"),
        metavar="N",
        help="updates of an epoch: compares restarts at its end and in its middle",
    )
    own.add_argument(
        "--ranks",
        type=number_of("ranks"),
        metavar="N",
        help=f"the number for {PLACE} in the command, as in torchrun --nproc-per-node {PLACE}",
    )
    own.add_argument(
        "--resume-ranks",
        type=number_of("ranks"),
        metavar="M",
        help="another number, on which it is resumed as well",
    )
    own.add_argument("--stop", default="", metavar="OPTIONS", help="options of check stop, as --stop='--signal USR1 --grace 30s'")  # fmt: skip
    own.add_argument("--junit", type=Path, metavar="FILE", help="write the answers as JUnit XML")
    own.add_argument("--json", action="store_true", help=f"print {REPORT} in place of the lines")
    add_options(own, REPORT)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in QUESTIONS:
            raise argparse.ArgumentTypeError(f'"{name}" is not one of {", ".join(QUESTIONS)}')
    return names


def run(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        own = asked(options, "check all")
        _require_ranks(own, options)
        with folders.kept(own.output, own.folder.name):
            answers = _told(_Checks(own, options), is_shown=not options.json)
        return _written(own, options, answers)
    except (folders.FolderError, CannotStartError) as error:
        say(str(error))
    except KeyboardInterrupt:
        say("the checks were interrupted; their runs have been ended")
    except OSError as error:
        say(
            f"{error.filename or options.folder}: {error.strerror}: name another folder by --folder"
        )
    return CANNOT_TELL_CODE


def _require_ranks(own: Asked, options: argparse.Namespace) -> None:
    """Raises FolderError where a command has a place for their number, and none is named."""
    if options.ranks is None and any(PLACE in word for word in (*own.command, *own.again)):
        raise folders.FolderError(f"the command has {PLACE}: name their number by {RANKS}")


def _told(checks: _Checks, *, is_shown: bool) -> list[Answer]:
    answers = []
    for one in checks.answers():
        answers.append(one)
        if is_shown:
            print(f"{one.verdict:<15}{one.name:<15}{one.why}", flush=True)
    return answers


def _written(own: Asked, options: argparse.Namespace, answers: list[Answer]) -> int:
    verdicts = {one.verdict for one in answers}
    code = 1 if NO in verdicts else CANNOT_TELL_CODE if CANNOT_TELL in verdicts else 0
    content = {
        "format": FORMAT, "exit_code": code, "answers": [asdict(one) for one in answers],
        "command": own.command, "resume_command": own.again, "runs": str(own.folder),
    }  # fmt: skip
    text = json.dumps(content, indent=1)
    path = options.folder / REPORT
    path.write_text(text + "\n", encoding="utf-8")
    if options.junit is not None:
        junit.write(options.junit, answers)
    print(text if options.json else f"more: {path}; the runs lie in {own.folder}")
    return code


@dataclass(frozen=True)
class _Ran:
    report: Report | None
    code: int
    seconds: float
    path: Path
    last_line: str


class _Checks:
    """Each is a process of its own, whose output and report go into a folder of its own."""

    def __init__(self, own: Asked, options: argparse.Namespace) -> None:
        self._own, self._options = own, options
        self._ran: dict[tuple[str, ...], _Ran] = {}
        """By the check's words: two questions may need the same."""

    def answers(self) -> Iterator[Answer]:
        rhythm = self._rhythm()
        for name in self._options.only:
            yield self._answer(name, QUESTIONS[name], rhythm)

    def _rhythm(self) -> Rhythm | None:
        options = self._options
        every = options.every or self._every()
        if every is None:
            return None
        return Rhythm(every, options.epoch, options.ranks, options.resume_ranks)

    def _every(self) -> int | None:
        found = self._run("saves", "saves", self._words(QUESTIONS["saves"], Rhythm(1)))
        saved = (found.report or {}).get("checkpoints", ())
        return updates_between([one["update"] for one in saved])

    def _answer(self, name: str, question: Question, rhythm: Rhythm | None) -> Answer:
        def told(verdict: str, why: str, words: list[str], ran: _Ran | None = None) -> Answer:
            path = str(ran.path) if ran is not None and ran.report is not None else None
            seconds = ran.seconds if ran is not None else 0.0
            return Answer(name, question.text, verdict, why, shlex.join(words), seconds, path)

        if rhythm is None:
            if question.is_resumed:
                return told(CANNOT_TELL, "check saves saw no two saves: name the updates between two by --every", [])  # fmt: skip
            rhythm = Rhythm(1)
        try:
            words = self._words(question, rhythm)
        except NotApplicableError as error:
            return told(DOES_NOT_APPLY, str(error), [])
        ran = self._run(name, question.verb, words)
        shown = [PROGRAM, "check", question.verb, *words, "--", *self._command(words)]
        if ran.report is None:
            return told(CANNOT_TELL, f"the check has failed: {ran.last_line}", shown, ran)
        return told(*question.answer(ran.report, rhythm), shown, ran)

    def _words(self, question: Question, rhythm: Rhythm) -> list[str]:
        """Options of the check, without its folder."""
        options = self._options
        words = question.options(rhythm)
        words += shlex.split(options.stop) if question.verb == "stop" else []
        if question.is_resumed:
            for name in ("resume", "output", "timeout"):
                value = getattr(options, name)
                words += [] if value is None else [f"--{name}", str(value)]
        return words if RANKS in words else self._filled(words)

    def _command(self, words: list[str]) -> list[str]:
        """With the number of ranks in it, if the check does not put it there."""
        return self._own.command if RANKS in words else self._filled(self._own.command)

    def _filled(self, words: list[str]) -> list[str]:
        return [word.replace(PLACE, str(self._options.ranks)) for word in words]

    def _run(self, name: str, verb: str, words: list[str]) -> _Ran:
        key = (verb, *words)
        if key not in self._ran:
            print(f"{TOLD}check {verb} ...", file=sys.stderr, flush=True)
            self._ran[key] = self._start(self._own.folder / name, verb, words)
        return self._ran[key]

    def _start(self, folder: Path, verb: str, words: list[str]) -> _Ran:
        folder.mkdir()
        question = next(one for one in QUESTIONS.values() if one.verb == verb)
        command = self._command(words)
        if not question.is_resumed:
            command = folders.placed(command, folder / "checkpoints")
        line = [sys.executable, "-I", "-c", START, "check", verb, *words, "--folder", str(folder), "--", *command]  # fmt: skip
        begun, log = time.monotonic(), folder / LOG
        adopt_orphans()
        with log.open("wb") as file, started(line, dict(os.environ), file.fileno()) as child:
            code = child.wait()
        if not question.is_resumed:
            folders.set_aside(self._own.output, f"{self._own.folder.name}-{folder.name}")
        path = folder / question.report
        report: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = (line.strip().removeprefix(TOLD) for line in reversed(lines))
        return _Ran(report, code, time.monotonic() - begun, path, next(filter(None, said), ""))
