"""Whether a run starts from the beginning or continues an earlier attempt, and from which checkpoint."""

from __future__ import annotations

import dataclasses
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypedDict

from ckptbench.checkpointing.levels import open_levels
from ckptbench.checkpointing.version import Version
from ckptbench.common.clock import Instant, day_ns
from ckptbench.common.errors import CheckpointError, LaunchError, RunFolderError
from ckptbench.common.files import read_shaped
from ckptbench.common.remedies import blame
from ckptbench.common.removal import try_to_remove
from ckptbench.failures.recovery.contract import next_attempt
from ckptbench.launch.allocation import scheduler_job, was_requeued
from ckptbench.launch.earlier_traces import keep_damaged_traces, keep_traces, warn_of_lost_epochs
from ckptbench.launch.folder_locks import runs_of
from ckptbench.launch.manifest import iso
from ckptbench.launch.shard_assembler import ShardAssembler
from ckptbench.run.events import Start
from ckptbench.run.finished import forget_seal, has_sealed
from ckptbench.run.identity import Identity
from ckptbench.run.layout import (
    FINAL_ARRAYS,
    LAUNCHER_TRACE,
    MANIFEST,
    STRIKES,
    trace_path,
)
from ckptbench.run.plan import PLAN, Plan
from ckptbench.run.trace import whole_events

log = logging.getLogger(__name__)


def prepare(
    plan: Plan, *, logs: Path, resume: bool, assembler: ShardAssembler
) -> tuple[Plan, dict[str, Any]]:
    """Continue an earlier attempt from its newest checkpoint version, or empty the run folder and the checkpoint folder.

    An earlier attempt is continued if `resume` is set or the scheduler has requeued this job, and if there is a complete
    version of the same training: that its own manifest says so is enough. `assembler` finds one that lies on several nodes.
    Otherwise what the attempt has left is removed, but for versions that were to be continued and could not be: those are
    kept aside. Returns the plan of this attempt, and fields for its manifest: how often the scheduler has requeued the run
    and, of a continued run, when it began.

    Raises RunFolderError if a trace of a struck run is damaged, and LaunchError or CheckpointError if what would be taken
    for a part of this run cannot be removed.
    """
    sealed = has_sealed(plan.run_folder)
    forget_seal(plan.run_folder)
    levels = open_levels(plan)
    levels.make()
    last = _last_attempt(plan)
    requeued = _is_requeue(last)
    requeues = last.requeues + 1 if last and requeued else int(requeued)
    if (resume or requeued) and not (sealed and last and last.status == "complete"):
        if version := _version_to_continue(plan, last, assembler):
            earlier = last or _attempt_of(version, plan)
            own = dataclasses.replace(plan, run_id=version.identity.run_id)
            began = {"started": earlier.started, "clock": str(earlier.began)}
            going = next_attempt(own, version.folder, attempt=earlier.attempts + 1)
            return going, {"requeues": requeues, **began}
        levels.keep_aside()
    elif last is None and os.path.lexists(plan.run_folder / MANIFEST):
        levels.keep_aside()  # nobody knows whether they were to be continued
    for pattern in ("trace-*.jsonl", FINAL_ARRAYS, STRIKES, LAUNCHER_TRACE):
        for path in plan.run_folder.glob(pattern):
            _forget(path)
    levels.clear()
    if error := try_to_remove(logs):
        log.warning("logs of an earlier attempt stay, since they cannot be removed (%s)", error)
    return plan, {"requeues": requeues}


def _version_to_continue(
    plan: Plan, last: Attempt | None, assembler: ShardAssembler
) -> Version | None:
    """The newest sound version, if it is of the same training. The traces of another run, or damaged ones, are kept aside.

    What the version says of its training counts, and not what the run's manifest says: a version has a checksum.
    """
    traces = [trace_path(plan.run_folder, rank) for rank in range(plan.cell.ranks)]
    if not any(map(os.path.lexists, (plan.run_folder / MANIFEST, plan.run_folder / PLAN, *traces))):
        return None  # whoever removes the folder of a run has it trained again
    runs = runs_of(plan.run_folder)
    run_id = last.identity.run_id if last else next(iter(runs), plan.run_id)
    version = _newest(dataclasses.replace(plan, run_id=run_id), assembler)
    identity = version.identity if version else last and last.identity
    if identity and (different := identity.another_training(plan.identity)):
        log.warning(
            "the earlier attempt in %s is not continued, because it is of another training: %s",
            plan.run_folder,
            different,
        )
        return None
    if version is None:
        return None
    if last is None or version.identity.run_id != run_id:
        log.warning("%s says which run is continued", version.folder)
    if runs and version.identity.run_id not in runs:
        keep_traces(plan, f"the traces in {plan.run_folder} are of another run")
    else:
        keep_damaged_traces(plan)
    warn_of_lost_epochs(plan, version)
    return version


def _forget(path: Path) -> None:
    """Remove what would be taken for a part of this run. Raises LaunchError."""
    if error := try_to_remove(path):
        raise LaunchError(
            f"{path}, which an earlier attempt has left, cannot be removed: {blame(error, path, 'remove it')}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The last attempt at a run, as its manifest describes it."""

    identity: Identity
    status: str
    attempts: int
    requeues: int
    started: str
    began: Instant
    """The same moment by both clocks of its host."""
    scheduler_job: str | None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises RunFolderError if `path` is no manifest of this version."""
        content = read_shaped(path, _Manifest)
        try:
            began = Instant.read(content["clock"])
            identity = Identity.from_json(content)
        except ValueError as error:
            raise RunFolderError(f"{path}: {error}") from error
        return cls(
            identity=identity,
            status=content["status"],
            attempts=content["attempts"],
            requeues=content["requeues"],
            started=content["started"],
            began=began,
            scheduler_job=content["host"]["scheduler_job"],
        )


class _Host(TypedDict):
    scheduler_job: str | None


class _Manifest(TypedDict):
    """What a restart reads of a run's manifest, beside the identity."""

    status: str
    attempts: int
    requeues: int
    started: str
    clock: str
    host: _Host


def _is_requeue(earlier: Attempt | None) -> bool:
    """Whether this job made the earlier attempt and was requeued. Schedulers requeue a job under the same id.

    An attempt that failed, or that a user interrupted in an interactive job, is not continued but repeated. Where it is not
    known who made the attempt (None), the scheduler must say that the job was requeued.
    """
    job = scheduler_job(os.environ)
    if earlier is None:
        return was_requeued(os.environ) is True
    same = job is not None and earlier.scheduler_job == job
    return bool(same and (earlier.status in {"stopped", "running"} or was_requeued(os.environ)))


def completed_by_this_job(plan: Plan) -> bool:
    """Whether an earlier execution of this job has completed the run.

    This happens when a job is told to stop in its last moment: the scheduler requeues it although its run is complete.
    """
    job = scheduler_job(os.environ)
    if job is None or was_requeued(os.environ) is False:
        return False
    earlier = _last_attempt(plan)
    return bool(
        earlier
        and (earlier.status, earlier.scheduler_job) == ("complete", job)
        and not earlier.identity.another_training(plan.identity)
    )


def newest_version(plan: Plan, assembler: ShardAssembler) -> Version | None:
    """The newest sound version from which the run can go on; None if there is none.

    What the local tiers of several nodes hold becomes a version of the shared level before, by `assembler`. Removes
    half-written versions of killed attempts, so no rank may run. Where a trace lacks an epoch before the version, the log
    says so: tables will lack it, as nobody writes it any more. Raises CheckpointError if the newest version is that of
    another run, and RunFolderError if a trace is damaged.
    """
    version = _newest(plan, assembler)
    if version is not None:
        _check_own(version, plan)
        warn_of_lost_epochs(plan, version)
    return version


def _newest(plan: Plan, assembler: ShardAssembler) -> Version | None:
    levels = open_levels(plan)
    levels.make()
    levels.discard_partial()
    if assembler.serves(plan):
        levels = levels.shared_alone()
        known = levels.newest()
        assembler.bring_together(plan, after=0 if known is None else known.position.step)
    return levels.newest()


def _check_own(version: Version, plan: Plan) -> None:
    if different := version.identity.another_run(plan.identity):
        raise CheckpointError(
            f"checkpoint {version.folder} is of another run: {different}; move {version.folder.parent} elsewhere, and start "
            "the run again"
        )


def _attempt_of(version: Version, plan: Plan) -> Attempt:
    """The last attempt, where the run's manifest cannot say so: by the version that it has left, and the traces."""
    starts: list[Start] = []
    for rank in range(plan.cell.ranks):
        with suppress(RunFolderError):
            found = whole_events(trace_path(plan.run_folder, rank))
            starts += [event for event in found if isinstance(event, Start)]
    began_ns = min((start.unix_ns for start in starts), default=day_ns())
    return Attempt(
        identity=version.identity,
        status="running",
        attempts=max([version.attempt, *(start.attempt for start in starts)]),
        requeues=0,
        started=iso(began_ns),
        # Of no boot: only the time of day is known.
        began=Instant(boot="unknown", monotonic_ns=began_ns, day_ns=began_ns),
        scheduler_job=None,
    )


def _last_attempt(plan: Plan) -> Attempt | None:
    """None if there is no attempt of this version in the run folder."""
    path = plan.run_folder / MANIFEST
    if not os.path.lexists(path):
        return None
    try:
        return Attempt.read(path)
    except RunFolderError as error:
        log.warning("the manifest of the earlier attempt cannot be used: %s", error)
        return None
