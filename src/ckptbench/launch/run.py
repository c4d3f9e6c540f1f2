"""Carries out one run of a cell: from an empty or interrupted run folder to a sealed one."""

from __future__ import annotations

import dataclasses
import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ckptbench.checkpointing import preflight
from ckptbench.checkpointing.levels import open_levels
from ckptbench.common.errors import LaunchError
from ckptbench.common.files import sync_folders, write_json
from ckptbench.common.processes import is_orphan
from ckptbench.common.remedies import STORAGE, blame
from ckptbench.launch import attempts
from ckptbench.launch.allocation import Allocation, own_allocation
from ckptbench.launch.folder_locks import checkpoint_folder_locked, run_folder_locked
from ckptbench.launch.limits import Limits, stop_requests
from ckptbench.launch.manifest import close_manifest, measured, opening_manifest, status_of
from ckptbench.launch.series import AttemptSeries
from ckptbench.launch.shard_assembler import ShardAssembler
from ckptbench.run.control.ranks import ranks_a_node
from ckptbench.run.finished import made_from, restore_seal
from ckptbench.run.layout import MANIFEST
from ckptbench.run.plan import Plan, RunSpec
from ckptbench.run.schedule import failures_of
from ckptbench.run.seal import seal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a planned run is carried out. No field here changes what the run measures."""

    python: Path
    """The interpreter of the framework's environment."""
    lock: str
    """Name of the lock file of that environment."""
    environment_sha256: str | None = None
    """See `run.finished.made_from`."""
    logs: Path
    resume: bool = False
    """Whether an interrupted run continues from its newest complete version."""
    keep_after_run: int = 0
    """Number of checkpoint versions that stay when the run has completed."""
    timeout_seconds: float | None = None
    repeat: bool = False
    """Whether to train again what is sealed and would be made from the same."""
    levels: Mapping[str, str | None] = field(default_factory=dict)
    """The folders of local tiers that the config names, by its fields: `memory_folder`, `node_folder`."""
    parent: int = field(default_factory=os.getppid)
    """Id of the process that asked for the run. When it is not this process' parent any more, the run is ended."""


def run_cell(spec: RunSpec, execution: Execution) -> None:
    """Train the cell and seal its run folder.

    A run that failures strike is restarted here, as a new attempt. A run that was sealed, and whose seal alone was
    removed since, as workflows do before they repeat a job, is not trained again but sealed again (`restore_seal`).
    Raises LaunchError if the run does not end well, and RunStopped if it was told to stop. The manifest then says why.
    """
    if is_orphan(execution.parent):
        raise LaunchError("the workflow that started this run is gone: the run was not started")
    plan = Plan.of(spec, run_id=uuid.uuid4().hex)
    with (
        _written(plan.run_folder),
        run_folder_locked(plan.run_folder),
        checkpoint_folder_locked(plan.checkpoint_folder, run_folder=plan.run_folder),
        stop_requests() as stop,
    ):
        sync_folders(plan.run_folder)
        inputs = made_from(
            spec,
            environment_sha256=execution.environment_sha256,
            levels=execution.levels,
        )
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
        limits = Limits(
            timeout_seconds=execution.timeout_seconds, stop=stop, parent=execution.parent
        )
        assembler = ShardAssembler(python=execution.python, logs=execution.logs, limits=limits)
        plan, carried = attempts.prepare(
            plan,
            logs=execution.logs,
            resume=execution.resume,
            assembler=assembler,
        )
        manifest = {**opening_manifest(plan, execution.lock), **carried}
        write_json(plan.run_folder / MANIFEST, manifest)
        try:
            allocation = own_allocation(os.environ)
            here = _own_node(allocation)
            assignments = allocation.assignments(plan.cell.ranks)
            plan = _with_failures(plan, allocation)
            preflight.check(plan, ranks_here=ranks_a_node(assignments))
            nodes = [assignment.node for assignment in assignments]
            preflight.check_levels(
                plan,
                here if len(set(nodes)) > 1 else None,
                part=nodes.count(here) / len(nodes),
            )
            AttemptSeries(plan, allocation, assembler, manifest).run()
            manifest |= measured(plan)
        except BaseException as error:
            # A run that was told to stop is "stopped" even if stopping failed, so that a requeue continues it.
            status = "stopped" if stop.signal else status_of(error)
            try:
                close_manifest(
                    plan, manifest, status=status, error=f"{type(error).__name__}: {error}"
                )
            except OSError as unwritten:
                path = plan.run_folder / MANIFEST
                log.error("%s cannot be written: %s", path, blame(unwritten, path))
            _name_local(plan)
            raise
        close_manifest(plan, manifest, status="complete", error=None)
        seal(plan.run_folder, plan.cell.ranks, inputs)
        _prune(plan, execution.keep_after_run)
        open_levels(plan).forget_local()


def _name_local(plan: Plan) -> None:
    """Name in the log the folders of this node in which a failed run keeps versions. They may fill its memory."""
    for level, store in open_levels(plan).local.items():
        if store.steps():
            log.warning(
                "%s keeps versions of the level %s for a restart: remove it if there will be none",
                store.folder,
                level,
            )


def _prune(plan: Plan, keep: int) -> None:
    """Remove all but the newest `keep` versions, and the recycled one. Errors are only logged: all is measured."""
    store = open_levels(plan, keep=keep).shared
    store.retain()
    store.forget_recycled()


def _with_failures(plan: Plan, allocation: Allocation) -> Plan:
    """The plan with the failures that strike it on these nodes. Raises ConfigError where they cannot."""
    failures = failures_of(
        plan.cell,
        plan.listed,
        seed=plan.seed,
        nodes=[assignment.node for assignment in allocation.assignments(plan.cell.ranks)],
        steps_per_epoch=plan.steps_per_epoch,
    )
    return dataclasses.replace(plan, failures=failures)


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Raises LaunchError where the file system of the run folder takes no more files, with what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in STORAGE:
            raise
        at = error.filename or folder
        raise LaunchError(
            f"{at} cannot be written: {blame(error, folder)}, and start the run again"
        ) from error


def _own_node(allocation: Allocation) -> str:
    """The node on which this process runs. Raises LaunchError where this host is no node of the job, such as a login node.

    The launcher measures cores, memory and disk of this host, and takes them for those of a node.
    """
    if allocation.here is None:
        raise LaunchError(
            f"this host is no node of job {allocation.job_id}: start the study inside the job "
            "(a script for sbatch or qsub, or srun --pty), or leave the job and use a cluster's profile"
        )
    return allocation.here
