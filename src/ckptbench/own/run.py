"""Carries out one run of an own training: from an empty folder to a sealed one."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptbench import __version__
from ckptbench.common.errors import EnvironmentSetupError, LaunchError
from ckptbench.common.files import read_json, write_json
from ckptbench.common.host import host_facts
from ckptbench.common.memory_kills import MemoryKills, ended
from ckptbench.common.processes import is_orphan
from ckptbench.common.remedies import blame
from ckptbench.common.removal import remove_or_warn, try_to_remove
from ckptbench.launch.allocation import granted_cores, scheduler_job
from ckptbench.launch.folder_locks import run_folder_locked
from ckptbench.launch.limits import Limits, stop_requests
from ckptbench.own.cell import OwnCell
from ckptbench.own.record import FORMAT, OUTPUT, PROBE, RUN, SEAL, SUMMARY, made_from, seal
from ckptbench.own.supervised import run_probed
from ckptbench.own.surroundings import check_program, of_command

log = logging.getLogger(__name__)

TOLD = "ckptbench-probe: "
TAIL_LINES = 12
LAST_BYTES, LAST_LINES = 2**20, 200
"""Of the output, among which the last error is looked for."""
AN_ERROR = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception|Exit)|error): .")
OF_TERMINALS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ERROR_CHARACTERS = 200
NOT_STARTED = (126, 127)
"""Exit codes of a command that could not be started."""
PATIENCE_SECONDS = 60.0
"""For an earlier run of the same cell, whose workflow is gone, to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a run is carried out. No field here changes what it measures."""

    runs: Path
    """The folder of run folders."""
    environment: Mapping[str, str]
    """Of the workflow, as the user has started it."""
    keep: bool = False
    """Whether the checkpoints stay."""
    timeout_seconds: float | None = None
    repeat: bool = False
    """Whether to make a run again that is complete."""
    parent: int = field(default_factory=os.getppid)


def run_own(cell: OwnCell, execution: Execution) -> None:
    """Make the run and seal its folder. One that is complete, and whose seal alone is gone, is sealed again.

    Raises LaunchError where the command does not end well, or the probe has seen no training: run.json then says why.
    """
    if is_orphan(execution.parent):
        raise LaunchError("the workflow that started this run is gone: the run was not started")
    if importlib.util.find_spec("ckptbench_probe") is None:
        raise EnvironmentSetupError(
            "Snakemake's environment has no ckptbench-probe: run `make environment`, or `pip install ./probe` there"
        )
    folder = (execution.runs / cell.id).resolve()
    with run_folder_locked(folder, patience_s=PATIENCE_SECONDS), stop_requests() as stop:
        if not execution.repeat and made_from(folder) == cell.to_json():
            log.info("the run is complete: it is kept (to make it again, remove %s)", folder)
            seal(folder)
            return
        limits = Limits(
            timeout_seconds=execution.timeout_seconds, stop=stop, parent=execution.parent
        )
        for name in (SEAL, RUN, PROBE, OUTPUT):
            _remove(folder / name)
        checkpoints = _fresh_folder(cell, folder)
        record = _opening(cell, checkpoints)
        write_json(folder / RUN, record)
        try:
            record |= _made(cell, folder, checkpoints, execution.environment, limits)
            _say_what_is_odd(cell, record["checkpoints"], record["host"]["gpus"])
        except BaseException as error:
            if folder.is_dir():
                write_json(folder / RUN, {**record, "status": "failed", "error": str(error)})
            raise
        finally:
            if not execution.keep:
                remove_or_warn(checkpoints)
        write_json(folder / RUN, {**record, "status": "complete"})
        seal(folder)


def _fresh_folder(cell: OwnCell, folder: Path) -> Path:
    """An empty folder for the checkpoints of the run, at the same place each time, so that what a killed run left is removed."""
    if cell.checkpoints is None:
        path = folder / "checkpoints"
    else:
        mark = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
        path = Path(cell.checkpoints).resolve() / f"{cell.id}-{mark}"
    _remove(path)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise LaunchError(f"{path} cannot be made: {blame(error, path)}") from error
    return path


def _remove(path: Path) -> None:
    if error := try_to_remove(path):
        raise LaunchError(
            f"{path} of an earlier run cannot be removed: {blame(error, path, 'remove it')}"
        )


def _opening(cell: OwnCell, checkpoints: Path) -> dict[str, Any]:
    """What is known before the command starts."""
    return {
        "format": FORMAT,
        "cell": cell.to_json(),
        "command": cell.words(str(checkpoints)),
        "folder": str(checkpoints),
        "status": "running",
        "error": None,
        "measured_on": "gpu" if cell.gpus else "cpu",
        "host": {
            **host_facts(checkpoints),
            "cores": granted_cores(os.environ),
            "scheduler_job": scheduler_job(os.environ),
        },
        "ckptbench_version": __version__,
    }


def _made(
    cell: OwnCell,
    folder: Path,
    checkpoints: Path,
    given: Mapping[str, str],
    limits: Limits,
) -> dict[str, Any]:
    """Run the command, and return what is known afterwards."""
    environment = of_command(cell, given, str(checkpoints))
    check_program(cell, environment)
    kills = MemoryKills.now()
    output, probe = folder / OUTPUT, folder / PROBE
    done = run_probed(
        cell.words(str(checkpoints)),
        probe=probe,
        output=output,
        directory=Path(cell.directory),
        environment=environment,
        limits=limits,
    )
    if not output.is_file():
        raise LaunchError(
            f"{folder} was removed while the command ran: let it remove nothing outside its {{folder}}"
        )
    if done.status != 0:
        is_started = done.status not in NOT_STARTED
        raise LaunchError(
            f"the command {ended(done.status, kills)}: {_end_of(output, is_started=is_started)}"
        )
    if not (probe / SUMMARY).is_file() and done.left:
        raise LaunchError(
            f"the command ended before its training: {done.left} of its processes ran on and were ended; use a command that waits "
            "for the training, without & or nohup"
        )
    if not (probe / SUMMARY).is_file():
        raise LaunchError(f"the command ended well, but nothing was measured: {_told(output)}")
    summary = read_json(probe / SUMMARY)
    saved = sum(not one["failed"] for one in summary["checkpoints"])
    return {
        "exit_code": done.status,
        "wall_s": done.wall_s,
        "started_unix_s": done.started_unix_s,
        "ended_unix_s": done.started_unix_s + done.wall_s,
        # In a job, the command may have ranks started by the scheduler, which are no processes of this one.
        "others": None if scheduler_job(os.environ) else done.others,
        "stolen": done.stolen,
        "checkpoints": saved,
    }


def _say_what_is_odd(cell: OwnCell, saved: int, gpus: Sequence[str]) -> None:
    if gpus and not cell.gpus:
        log.warning(
            "this machine has GPUs (%s), and own.gpus is 0, so all figures say that they were measured on a CPU: set own.gpus if not",
            gpus[0],
        )
    if cell.is_baseline and saved:
        log.warning(
            "%s is the run without checkpoints, and the probe has seen %d: what they cost is missing in every overhead",
            cell.id,
            saved,
        )
    if not cell.is_baseline and not saved:
        log.warning(
            "%s has no checkpoint that the probe has seen: it saves rarer than it trains, or by an engine that the probe does not know",
            cell.id,
        )


def _lines(output: Path) -> tuple[list[str], list[str]]:
    """The last of the command, and of the probe."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - LAST_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    # What the probe says is on the command's last line, if that has no end.
    text = OF_TERMINALS.sub("", text).replace(TOLD, f"\n{TOLD}")
    lines = ["".join(filter(str.isprintable, line)) for line in text.splitlines()]
    probe = [line.removeprefix(TOLD) for line in lines if line.startswith(TOLD)]
    return [line for line in lines if line.strip() and not line.startswith(TOLD)], probe


def _end_of(output: Path, *, is_started: bool) -> str:
    """The end of what the command has printed, or what the probe says of one that could not be started. The last line that
    looks like an error comes first, as others may follow it."""
    command, probe = _lines(output)
    lines = command or ([] if is_started else probe[:1])
    if not lines:
        return f"it has printed nothing (its output: {output})"
    errors = [line for line in lines[-LAST_LINES:] if AN_ERROR.search(line)]
    words = [line for line in lines if re.search(r"\w", line)]
    shown = "\n".join(f"    [{output.stem}] {line}" for line in lines[-TAIL_LINES:])
    return f"{(errors or words or lines)[-1].strip()[:ERROR_CHARACTERS]} (its output: {output})\n{shown}"


def _told(output: Path) -> str:
    """The probe's own sentence."""
    _, probe = _lines(output)
    return probe[-1] if probe else f"the probe has said nothing in {output}"
