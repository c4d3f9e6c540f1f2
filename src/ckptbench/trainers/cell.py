"""One cell of the study of trainers: a trainer under one check of `ckptbench-probe`, and the answers in a file.

Whatever goes wrong is an answer too, "cannot tell", so that other cells go on.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ckptbench.common.errors import EnvironmentSetupError
from ckptbench.common.files import read_json, write_json
from ckptbench.common.processes import die_with_parent
from ckptbench.config.trainers import CHECKS, COST
from ckptbench.trainers.trainer import Row

log = logging.getLogger("ckptbench")

YES, NO, CANNOT_TELL, DOES_NOT_APPLY, MEASURED = "yes", "no", "cannot tell", "does not apply", "measured"  # fmt: skip
PROGRAM = "ckptbench-probe"
STOP = "--grace 20s"
"""For `check stop`: these trainings save within a second."""
GRACE_S = 20.0
"""For the probe to end its runs."""
LINES_OF_LOG, LETTERS = 60, 300
REPORT, SUMMARY = "all.json", "summary.json"
"""Of the probe."""
VARIABLES = {"PET_STANDALONE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
"""torchrun takes a free port, so that several cells can run at a time; one thread a rank; no GPU."""
VERSIONS = """
import importlib.metadata, json, os, sys
found = {"python": "%d.%d.%d" % sys.version_info[:3]}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = ""
print(json.dumps([found, os.path.dirname(sys.executable)]))
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """A cell of the table."""

    column: str
    verdict: str
    words: str
    command: str
    """That repeats it."""
    seconds: float
    costs: dict[str, float | None]
    """Of a save: `stall_s`, `slowdown_s`, `file_bytes`, `state_bytes`, `memory_bytes`. Empty but for the cost."""


def run_cell(row: Row, check: str, environment: Path, minutes: float, output: Path) -> None:
    """Check the trainer and write the answers to `output`."""
    begun = time.monotonic()
    versions: dict[str, str] = {}
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        versions, programs = _versions(environment, row.trainer.packages)
        scratch = output.with_name(f"{check}-work").absolute()
        shutil.rmtree(scratch, ignore_errors=True)  # of a job that was ended
        scratch.mkdir()
        answers = _answers(row, check, programs, scratch, minutes)
        shutil.rmtree(scratch)
    except (EnvironmentSetupError, OSError, ValueError, LookupError) as error:
        answers = _unknown(check, f"{type(error).__name__}: {error}", "", time.monotonic() - begun)
    for one in answers:
        log.info("%s %s: %s: %s", row.name, one.column, one.verdict, one.words)
    content = {
        "row": row.name, "check": check, "answers": [asdict(one) for one in answers], "versions": versions,
        "date": datetime.now(UTC).date().isoformat(), "seconds": time.monotonic() - begun, "cpu_seconds": _cpu_s(),
    }  # fmt: skip
    write_json(output, content)


def _cpu_s() -> float:
    """Of all that was started; what others do on the machine does not count in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _versions(environment: Path, packages: Sequence[str]) -> tuple[dict[str, str], Path]:
    """Of these distributions, and the folder of the environment's programs. Raises EnvironmentSetupError where one is not there."""
    python = environment / "bin" / "python"
    done = subprocess.run([python, "-P", "-c", VERSIONS, *packages], capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise EnvironmentSetupError(f"{python} does not start: {last}")
    versions, programs = json.loads(done.stdout)
    if missing := [name for name in packages if not versions[name]]:
        raise EnvironmentSetupError(f"{environment} has no {', '.join(missing)}")
    return versions, Path(programs)


def _answers(row: Row, check: str, programs: Path, scratch: Path, minutes: float) -> list[Answer]:
    found, begun = scratch / "found", time.monotonic()
    options = ["run"] if check == COST else _options(row, check)
    command = row.words(row.command)
    if check == COST:
        command = [word.replace("{ranks}", str(row.ranks(check))) for word in command]
    placed = [word.replace("{folder}", str(scratch / "checkpoints")) for word in command]
    words = [*options, "--folder", str(found), "--", *(placed if check == COST else command)]
    last_line = _run(words, programs, scratch, minutes)
    took_s = time.monotonic() - begun
    path = found / (SUMMARY if check == COST else REPORT)
    if not path.exists():
        return _unknown(check, last_line, _shown(row, shlex.join([PROGRAM, *options, "--", *command])), took_s)  # fmt: skip
    report = read_json(path)
    if check == COST:
        return [_cost(report, _shown(row, shlex.join([PROGRAM, "run", "--", *command])), took_s)]
    return [
        Answer(one["name"], one["verdict"], one["why"], _shown(row, one["command"]), one["seconds"], {})
        for one in report["answers"]
    ]  # fmt: skip


def _options(row: Row, check: str) -> list[str]:
    trainer = row.trainer
    options = ["check", "all", "--only", ",".join(CHECKS[check]), "--every", str(trainer.saves_every), "--epoch", str(trainer.epoch), f"--stop={STOP}"]  # fmt: skip
    options += ["--ranks", str(row.ranks(check)), *(["--resume-ranks", "1"] if trainer.ranks > 1 else [])]  # fmt: skip
    return [
        *options,
        *(["--resume", shlex.join(row.words(row.resume))] if row.resume else []),
    ]


def _shown(row: Row, command: str) -> str:
    """As a reader types it in the clone."""
    near = Path(row.folder.parent.name, row.folder.name, row.script.name)
    return command.replace(str(row.script.absolute()), str(near))


def _run(words: Sequence[str], programs: Path, scratch: Path, minutes: float) -> str:
    """Run the probe in a folder of its own; the last line that it says. Its programs are those of the environment."""
    work = scratch / "work"
    work.mkdir()
    variables = {**os.environ, **VARIABLES, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    line = [sys.executable, "-P", "-m", "ckptbench_probe.main", *words]
    path = scratch / "log.txt"
    with path.open("wb") as file:
        child = subprocess.Popen(line, cwd=work, env=variables, stdin=subprocess.DEVNULL, stdout=file, stderr=file, preexec_fn=die_with_parent)  # fmt: skip # noqa: PLW1509 - it has one thread
        try:
            child.wait(minutes * 60)
            late = ""
        except subprocess.TimeoutExpired:
            late = f"it had not ended after {minutes:g} minutes"
            child.terminate()
            try:
                child.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    lines = [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
    log.info("%s", "\n".join(lines[-LINES_OF_LOG:]))
    return late or (lines[-1].strip()[:LETTERS] if lines else "the probe said nothing")


def _unknown(check: str, reason: str, command: str, took_s: float) -> list[Answer]:
    words = " ".join(reason.split())
    return [Answer(column, CANNOT_TELL, words, command, took_s, {}) for column in CHECKS[check]]


def _cost(summary: dict[str, Any], command: str, took_s: float) -> Answer:
    """Medians of a run's saves."""
    saves = [one for one in summary["checkpoints"] if not one["failed"]]
    if not saves:
        return Answer(COST, CANNOT_TELL, "no save was seen", command, took_s, {})
    costs = {
        **{f"{name}_s": (summary[name] or {}).get("median") for name in ("stall", "slowdown")},
        "file_bytes": max(one["size"] for one in saves) or None,
        "state_bytes": sum(sum(types.values()) for types in summary["state"].values()) or None,
        "memory_bytes": max(one["memory_bytes"] for one in saves),
    }
    stall = costs["stall_s"]
    words = f"{len(saves)} saves" if stall is None else f"stall {stall * 1e3:.0f} ms, of {len(saves)} saves"  # fmt: skip
    return Answer(COST, MEASURED, words, command, took_s, costs)
