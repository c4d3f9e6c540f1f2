"""Whether a run starts from the beginning or continues an earlier attempt, and from which checkpoint."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.checkpoints.levels import open_levels
from ckptbench.checkpoints.version import Version
from ckptbench.common.clock import Instant, follow
from ckptbench.common.errors import CheckpointError, LaunchError, RunFolderError
from ckptbench.common.files import read_json
from ckptbench.common.remedies import blame
from ckptbench.common.removal import try_to_remove
from ckptbench.failures.recovery.contract import going_on
from ckptbench.launch.allocation import scheduler_job, was_requeued
from ckptbench.launch.shard_assembler import ShardAssembler
from ckptbench.matrix.registry import RECOVERIES
from ckptbench.runs.events import Epoch
from ckptbench.runs.identity import Identity
from ckptbench.runs.layout import (
    FINAL_ARRAYS,
    LAUNCHER_TRACE,
    MANIFEST,
    SEAL,
    STRIKES,
    trace_path,
)
from ckptbench.runs.plan import Plan
from ckptbench.runs.position import Position
from ckptbench.runs.trace import whole_events

log = logging.getLogger(__name__)


def prepare(
    plan: Plan, *, logs: Path, resume: bool, assembler: ShardAssembler
) -> tuple[Plan, dict[str, Any]]:
    """Continue an earlier attempt from its newest checkpoint version, or empty the run folder and the checkpoint folder.

    An earlier attempt is continued if `resume` is set or the scheduler has requeued this job, and if the attempt left a
    complete version; `assembler` finds one that lies on several nodes. Otherwise everything that it left is removed. Returns
    the plan of this attempt, and fields for its manifest: how often the scheduler has requeued the run and, of a continued
    run, when it began. The time of day then is that of the earlier attempt, if this host has not been started anew since.

    Raises CheckpointError if the newest version is that of another run, RunFolderError if a trace of the attempt is
    damaged, and LaunchError if what would be taken for a part of this run cannot be removed.
    """
    _forget(plan.run_folder / SEAL)
    earlier = _interrupted_attempt(plan)
    requeued = earlier is not None and _is_requeue(earlier)
    requeues = earlier.requeues + 1 if earlier and requeued else 0
    if earlier is not None and (resume or requeued):
        own = dataclasses.replace(plan, run_id=earlier.identity.run_id)
        if version := newest_version(own, assembler):
            began = earlier.began
            follow(began)
            carried = {"requeues": requeues, "started": earlier.started, "clock": str(began)}
            return going_on(own, version.folder, attempt=earlier.attempts + 1), carried
    for pattern in ("trace-*.jsonl", FINAL_ARRAYS, STRIKES, LAUNCHER_TRACE):
        for path in plan.run_folder.glob(pattern):
            _forget(path)
    levels = open_levels(plan)
    levels.make()
    levels.clear()
    if error := try_to_remove(logs):
        log.warning("logs of an earlier attempt stay, since they cannot be removed (%s)", error)
    return plan, {"requeues": requeues}


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
    """The same moment by all clocks of its host."""
    scheduler_job: str | None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises RunFolderError if `path` is no manifest of this version."""
        content = read_json(path)
        match content:
            case {
                "status": str(status),
                "attempts": int(attempts),
                "requeues": int(requeues),
                "started": str(started),
                "clock": str(clock),
                "host": {"scheduler_job": (str() | None) as job},
            }:
                try:
                    began = Instant.read(clock)
                    identity = Identity.from_json(content)
                except ValueError as error:
                    raise RunFolderError(f"{path}: {error}") from error
                return cls(
                    identity=identity,
                    status=status,
                    attempts=attempts,
                    requeues=requeues,
                    started=started,
                    began=began,
                    scheduler_job=job,
                )
        raise RunFolderError(
            f"{path}: status, attempts, requeues, started, clock or host is missing or wrong"
        )


def _is_requeue(earlier: Attempt) -> bool:
    """Whether this job made the earlier attempt and was requeued. Schedulers requeue a job under the same id.

    An attempt that failed, or that a user interrupted in an interactive job, is not continued but repeated.
    """
    job = scheduler_job(os.environ)
    same = job is not None and earlier.scheduler_job == job
    return bool(same and (earlier.status in {"stopped", "running"} or was_requeued(os.environ)))


def completed_by_this_job(plan: Plan) -> bool:
    """Whether an earlier execution of this job has completed the run.

    This happens when a job is told to stop in its last moment: the scheduler requeues it although its run is complete.
    """
    if was_requeued(os.environ) is False:
        return False
    earlier = _last_attempt(plan)
    job = scheduler_job(os.environ)
    return bool(
        earlier
        and (earlier.status, earlier.scheduler_job) == ("complete", job)
        and not earlier.identity.another_training(plan.identity)
    )


def newest_version(plan: Plan, assembler: ShardAssembler) -> Version | None:
    """The newest sound version from which the run can go on; None if there is none.

    What the local tiers of several nodes hold becomes a version of the shared level before, by `assembler`. Removes
    half-written versions of killed attempts, so no rank may run. A version is set aside if a trace lacks an epoch before
    it: nobody would write that epoch any more. Raises CheckpointError if the newest version is that of another run, and
    RunFolderError if a trace is damaged.
    """
    levels = open_levels(plan)
    levels.make()
    levels.discard_partial()
    if assembler.serves(plan):
        levels = levels.shared_alone()
        known = levels.newest()
        assembler.bring_together(plan, after=0 if known is None else known.position.step)
    while (version := levels.newest()) is not None:
        _check_own(version, plan)
        lost = _lost_epoch(plan, version.position)
        if lost is None:
            return version
        aside = levels.set_aside(version)
        log.warning("%s, which comes before %s; set aside as %s", lost, version.folder, aside.name)
    return None


def _check_own(version: Version, plan: Plan) -> None:
    if different := version.identity.another_run(plan.identity):
        raise CheckpointError(
            f"checkpoint {version.folder} is of another run: {different}; remove {version.folder.parent}, or start "
            "without resume, which removes its versions and trains from the beginning"
        )


def _lost_epoch(plan: Plan, position: Position) -> str | None:
    """The first epoch before `position` that a trace lacks, in words. None: every trace has all of them.

    Where ranks may be lost and the others go on, it is enough that one trace has it.
    """
    paths = [trace_path(plan.run_folder, rank) for rank in range(plan.cell.ranks)]
    recorded = [{e.epoch for e in whole_events(path) if isinstance(e, Epoch)} for path in paths]
    if RECOVERIES[plan.cell.recovery.name].keeps_survivors:
        recorded = [set().union(*recorded)]
    for path, epochs in zip(paths, recorded, strict=False):
        for epoch in range(position.step // plan.steps_per_epoch):
            if epoch not in epochs:
                return f'{path} has no "epoch" event for epoch {epoch}'
    return None


def _interrupted_attempt(plan: Plan) -> Attempt | None:
    """The last attempt at the same training, if it did not complete. The log says why another one is not continued."""
    earlier = _last_attempt(plan)
    if earlier is None or earlier.status == "complete":
        return None
    if different := earlier.identity.another_training(plan.identity):
        log.warning(
            "the earlier attempt in %s is not continued, because it is of another training: %s",
            plan.run_folder,
            different,
        )
        return None
    return earlier


def _last_attempt(plan: Plan) -> Attempt | None:
    """None if there is no attempt of this version in the run folder."""
    path = plan.run_folder / MANIFEST
    if not path.exists():
        return None
    try:
        return Attempt.read(path)
    except RunFolderError as error:
        log.warning("the earlier attempt cannot be continued: %s", error)
        return None
