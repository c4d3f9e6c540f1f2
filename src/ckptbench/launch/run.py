"""Carries out one run of a cell: from an empty or interrupted run folder to a sealed one."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptbench import __version__
from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.environments.create import READY
from ckptbench.errors import CheckpointError, LaunchError
from ckptbench.launch import attempts, checkpoint_folder, preflight
from ckptbench.launch.allocation import Allocation, read_allocation
from ckptbench.launch.manifest import close_manifest, measured, opening_manifest, status_of
from ckptbench.launch.ranks import launch
from ckptbench.launch.stopping import stop_requests
from ckptbench.launch.watch import Limits
from ckptbench.machine.files import file_sha256, write_json
from ckptbench.recovery.loading import load_recovery
from ckptbench.runs.finished import forget_seal, restore_seal
from ckptbench.runs.layout import MANIFEST
from ckptbench.runs.plan import Plan
from ckptbench.runs.seal import seal
from ckptbench.world.processes import is_orphan
from ckptbench.world.seats import ranks_a_node

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a planned run is carried out. No field here changes what the run measures."""

    python: Path
    """The interpreter of the framework's environment."""
    lock: Path
    """The lock file of that environment."""
    logs: Path
    resume: bool = False
    """Whether an interrupted run continues from its newest complete version."""
    keep_after_run: int = 0
    """Number of checkpoint versions that stay when the run has completed."""
    timeout_seconds: float | None = None
    repeat: bool = False
    """Whether to train again what is sealed and would be made from the same."""
    parent: int = field(default_factory=os.getppid)
    """Id of the process that asked for the run. When it is not this process' parent any more, the run is ended."""


def run_cell(plan: Plan, execution: Execution) -> None:
    """Train the cell and seal its run folder.

    A run that its history kills is restarted here, as a new attempt. A run that was sealed, and whose seal alone was
    removed since, as workflows do before they repeat a job, is not trained again but sealed again (`restore_seal`).
    Raises LaunchError if the run does not end well, and RunStopped if it was told to stop. The manifest then says why.
    """
    if is_orphan(execution.parent):
        raise LaunchError("the workflow that started this run is gone: the run was not started")
    plan = attempts.identified(plan, execution.lock)
    with (
        _locked(plan.run_folder),
        checkpoint_folder.held(plan.checkpoint_folder, run_folder=plan.run_folder),
        stop_requests() as stop,
    ):
        inputs = _made_from(plan, execution.python)
        if not execution.repeat and restore_seal(plan.run_folder, inputs):
            log.info(
                "the run was complete and sealed, and it would be made from the same again: it is kept "
                "(to train it again, remove %s or use --forcerun)",
                plan.run_folder,
            )
            _prune(plan, execution.keep_after_run)
            return
        if attempts.completed_by_this_job(plan):
            log.info("the run is already complete: this job was stopped just after it had finished")
            seal(plan.run_folder, plan.cell.ranks, inputs)
            return
        forget_seal(plan.run_folder)
        plan, carried = attempts.prepare(plan, logs=execution.logs, resume=execution.resume)
        manifest = {**opening_manifest(plan, execution.lock), **carried}
        write_json(plan.run_folder / MANIFEST, manifest)
        try:
            allocation = read_allocation(os.environ)
            _check_host(allocation)
            seats = allocation.seats(plan.cell.ranks)
            preflight.check(plan, ranks_here=ranks_a_node(seats))
            limits = Limits(
                timeout_seconds=execution.timeout_seconds, stop=stop, parent=execution.parent
            )
            _launch_until_done(plan, execution, allocation, limits, manifest)
            manifest |= measured(plan)
        except BaseException as error:
            # A run that was told to stop is "stopped" even if stopping failed, so that a requeue continues it.
            status = "stopped" if stop.signal else status_of(error)
            close_manifest(plan, manifest, status=status, error=f"{type(error).__name__}: {error}")
            raise
        close_manifest(plan, manifest, status="complete", error=None)
        seal(plan.run_folder, plan.cell.ranks, inputs)
        _prune(plan, execution.keep_after_run)


def _made_from(plan: Plan, python: Path) -> dict[str, Any]:
    """What the run is made from, as JSON: a repetition with all of it equal would be the same run once more.

    That is what makes its training (`Identity`), where its checkpoints go, and what carries it out.
    """
    ready = python.parent.parent / READY
    return {
        **plan.identity.training_fields(),
        "checkpoint_folder": str(plan.checkpoint_folder),
        "environment_sha256": file_sha256(ready) if ready.is_file() else None,
        "ckptbench_version": __version__,
    }


def _prune(plan: Plan, keep: int) -> None:
    """Remove all but the newest `keep` versions. An error here is only logged: the run's measurements are complete."""
    try:
        CheckpointStore(plan.checkpoint_folder, keep=keep).retain()
    except (OSError, CheckpointError) as error:
        log.warning(
            "%s keeps versions that should go (%s): remove them", plan.checkpoint_folder, error
        )


def _launch_until_done(
    plan: Plan,
    execution: Execution,
    allocation: Allocation,
    limits: Limits,
    manifest: dict[str, Any],
) -> None:
    """Launch the ranks, and launch them again as long as the run's recovery asks for it."""
    recovery = load_recovery(plan.cell.recovery.name)
    while True:
        manifest["attempts"] = plan.attempt
        write_json(plan.run_folder / MANIFEST, manifest)
        verdict = launch(
            plan,
            allocation,
            recovery,
            python=execution.python,
            logs=execution.logs,
            limits=limits,
        )
        if verdict is None:
            return
        plan = recovery.next_attempt(plan, attempts.newest_version(plan))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the run folder. The kernel releases the lock when this process ends, even if it is killed.

    Raises LaunchError where another process holds the lock, or where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / ".lock").open("w")
    except OSError as error:
        raise LaunchError(
            f"{folder} cannot be written ({error.strerror}): remove what lies there, or give it to this user"
        ) from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LaunchError(
                f"{folder} is in use by another run of the same cell: wait for it, or end that process"
            ) from error
        yield


def _check_host(allocation: Allocation) -> None:
    """Raises LaunchError where this host is no node of the job, such as a login node.

    The launcher measures cores, memory and disk of this host, and takes them for those of a node.
    """
    if allocation.here is None:
        raise LaunchError(
            f"this host is no node of job {allocation.job_id}: start the study inside the job "
            "(a script for sbatch or qsub, or srun --pty), or leave the job and use a cluster's profile"
        )
