"""One execution of a cell, from an empty or interrupted run folder to a sealed one."""

from __future__ import annotations

import dataclasses
import datetime
import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench import __version__, attempts, preflight
from ckptbench.allocation import Allocation, ranks_a_node, read_allocation
from ckptbench.cells import KILLED
from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.digest import file_sha256
from ckptbench.errors import CheckpointError, LaunchError, RunFolderError, RunStopped
from ckptbench.launch import launch
from ckptbench.manifest import (
    MANIFEST,
    SCHEMA_VERSION,
    host_facts,
    seal,
    source_revision,
    trace_path,
    write_json,
)
from ckptbench.plan import Plan
from ckptbench.stopping import stop_requests
from ckptbench.watch import Limits

log = logging.getLogger(__name__)

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a planned run is carried out: nothing here changes what it measures."""

    python: Path
    """The interpreter of the framework's environment."""
    lock: Path
    logs: Path
    resume: bool = False
    keep_after_run: int = 0
    timeout_seconds: float | None = None


def run_cell(plan: Plan, execution: Execution) -> None:
    """Train the cell and seal its run folder.

    The restarts of a killed run are attempts of the same execution. Raises LaunchError, and leaves a manifest that
    says why, where the run does not end well; RunStopped where it was told to stop.
    """
    plan.run_folder.mkdir(parents=True, exist_ok=True)
    with _locked(plan.run_folder), stop_requests() as stop:
        if attempts.completed_by_this_job(plan, lock_sha256=file_sha256(execution.lock)):
            log.info("complete: this job was stopped when nothing was left to do but to say so")
            seal(plan.run_folder, plan.cell.ranks)
            return
        plan, carried = attempts.prepare(plan, logs=execution.logs, resume=execution.resume)
        manifest = {**_opening_manifest(plan, execution), **carried}
        write_json(plan.run_folder / MANIFEST, manifest)
        try:
            allocation = read_allocation(os.environ)
            _check_host(allocation)
            seats = allocation.seats(plan.cell.ranks)
            preflight.check(plan, ranks_here=ranks_a_node(seats))
            limits = Limits(timeout_seconds=execution.timeout_seconds, stop=stop)
            _launch_through_kills(plan, execution, allocation, limits, manifest)
            manifest |= _measured(plan)
        except BaseException as error:
            # Also where stopping itself went wrong: what was asked to stop goes on when it is requeued.
            status = "stopped" if stop.signal else _status(error)
            _close(plan, manifest, status=status, error=f"{type(error).__name__}: {error}")
            raise
        _close(plan, manifest, status="complete", error=None)
        seal(plan.run_folder, plan.cell.ranks)
        _prune(plan, execution.keep_after_run)


def _prune(plan: Plan, keep: int) -> None:
    """Remove the versions that are not to be kept. What does not go is no reason to lose what was measured."""
    try:
        CheckpointStore(plan.checkpoint_folder, keep=keep).retain()
    except (OSError, CheckpointError) as error:
        log.warning(
            "%s keeps versions that should go (%s): remove them", plan.checkpoint_folder, error
        )


def _launch_through_kills(
    plan: Plan,
    execution: Execution,
    allocation: Allocation,
    limits: Limits,
    manifest: dict[str, Any],
) -> None:
    """Launch the ranks, and again after each kill that the run's history asks for."""
    while True:
        manifest["attempts"] = plan.attempt
        write_json(plan.run_folder / MANIFEST, manifest)
        try:
            launch(plan, allocation, python=execution.python, logs=execution.logs, limits=limits)
            return
        except LaunchError:
            restarted = None if limits.stop.signal else attempts.after_kill(plan)
            if restarted is None:
                raise
            plan = restarted


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the run folder; the kernel lets go of it when this process ends, however it ends."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LaunchError(
                f"{folder} is in use by another run of the same cell: wait for it, or end that process"
            ) from error
        yield


def _check_host(allocation: Allocation) -> None:
    """What is measured here (cores, memory, disk) must be a node's: a login node has others."""
    if allocation.here is None:
        raise LaunchError(
            f"this host is no node of job {allocation.job_id}: start the study inside the job "
            "(a script for sbatch or qsub, or srun --pty), or leave the job and use a cluster's profile"
        )


def _status(error: BaseException) -> str:
    if isinstance(error, RunStopped):
        return "stopped"
    return "failed" if isinstance(error, Exception) else "interrupted"


def _opening_manifest(plan: Plan, execution: Execution) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "cell_id": plan.cell.id,
        "cell": plan.cell.to_json(),
        "training": dataclasses.asdict(plan.training),
        "seed": plan.seed,
        "status": "running",
        "attempts": plan.attempt,
        "started": _now(),
        "ended": None,
        "error": None,
        "measured_on": "gpu" if plan.cell.accelerator == "cuda" else "cpu",
        "host": host_facts(plan.checkpoint_folder),
        "ckptbench_version": __version__,
        "source": source_revision(REPOSITORY),
        "lock": execution.lock.name,
        "lock_sha256": file_sha256(execution.lock),
    }


def _measured(plan: Plan) -> dict[str, Any]:
    """What only the ranks knew: their device, versions, and the bytes that their state has."""
    kills = attempts.kill_events(plan)
    if len(kills) != (wanted := KILLED.get(plan.cell.history, 0)):
        raise LaunchError(f"the run was killed {len(kills)} times, its history asks for {wanted}")
    starts, states, replicas = [], [], []
    for rank in range(plan.cell.ranks):
        events = _last_events(trace_path(plan.run_folder, rank), {"start", "state", "digest"})
        starts.append(events["start"])
        states.append(events["state"])
        replicas.append(events["digest"]["tensors"])
    check_replicas(replicas)
    return {
        "device": starts[0]["device"],
        "versions": starts[0]["versions"],
        "kills": kills,
        "hosts": [start["host"] for start in starts],
        "parameters": states[0]["parameters"],
        "state_bytes": {
            "model": states[0]["model"],
            "optimizer": states[0]["optimizer"],
            "rest": sum(state["rest"] for state in states),
        },
    }


def check_replicas(digests: Sequence[Mapping[str, str]]) -> None:
    """Raises LaunchError where the ranks, given by their digests, ended with different parameters or momenta.

    Running statistics are each rank's own. What differs else was not trained data-parallel.
    """
    for rank, other in enumerate(digests[1:], start=1):
        different = [
            name
            for name, bits in digests[0].items()
            if other.get(name) != bits and not name.endswith((".mean", ".variance"))
        ]
        if different:
            raise LaunchError(
                f"rank {rank} ended with another {different[0]} than rank 0 ({len(different)} tensors "
                "differ): gradients were not averaged, so this is no result"
            )


def _last_events(trace: Path, names: set[str]) -> dict[str, dict[str, Any]]:
    """The last event of each name in a trace."""
    with trace.open(encoding="utf-8") as lines:
        events = [event for event in map(json.loads, lines) if event["event"] in names]
    found = {event["event"]: event for event in events}
    if missing := names - found.keys():
        raise RunFolderError(f"{trace} lacks the events {sorted(missing)}")
    return found


def _close(plan: Plan, manifest: dict[str, Any], *, status: str, error: str | None) -> None:
    ended = _now()
    seconds = datetime.datetime.fromisoformat(ended) - datetime.datetime.fromisoformat(
        manifest["started"]
    )
    manifest |= {
        "status": status,
        "error": error,
        "ended": ended,
        "duration_s": seconds.total_seconds(),
    }
    write_json(plan.run_folder / MANIFEST, manifest)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
