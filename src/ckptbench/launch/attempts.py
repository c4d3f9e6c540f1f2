"""Whether a run starts from the beginning or continues an earlier attempt, and from which checkpoint."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.checkpoints.version import Version
from ckptbench.errors import RunFolderError
from ckptbench.launch.allocation import scheduler_job, was_requeued
from ckptbench.machine.files import read_json
from ckptbench.recovery.restart import resumed
from ckptbench.runs.layout import FINAL_ARRAYS, MANIFEST, SEAL
from ckptbench.runs.plan import PLAN, Plan

log = logging.getLogger(__name__)


def prepare(plan: Plan, *, logs: Path, resume: bool) -> tuple[Plan, dict[str, Any]]:
    """Continue an earlier attempt from its newest checkpoint version, or empty the run folder.

    An earlier attempt is continued if `resume` is set or the scheduler has requeued this job, and if the attempt left a
    complete version. Otherwise everything that it left is removed. Returns the plan of this attempt, and fields for its
    manifest: how often the scheduler has requeued the run and, of a continued run, when it began.
    """
    (plan.run_folder / SEAL).unlink(missing_ok=True)
    earlier = _interrupted_attempt(plan)
    requeued = earlier is not None and _is_requeue(earlier)
    requeues = earlier.get("requeues", 0) + 1 if earlier and requeued else 0
    if earlier is not None and (resume or requeued) and (version := newest_version(plan)):
        carried = {"requeues": requeues, "started": earlier["started"]}
        return resumed(plan, version, attempt=earlier["attempts"] + 1), carried
    for pattern in ("trace-*.jsonl", FINAL_ARRAYS):
        for path in plan.run_folder.glob(pattern):
            path.unlink()
    for path in (plan.checkpoint_folder, logs):
        if path.exists():
            shutil.rmtree(path)
    return plan, {"requeues": requeues}


def _is_requeue(earlier: dict[str, Any]) -> bool:
    """Whether this job made the earlier attempt and was requeued. Schedulers requeue a job under the same id.

    An attempt that failed, or that a user interrupted in an interactive job, is not continued but repeated.
    """
    job = scheduler_job(os.environ)
    same = job is not None and earlier["host"]["scheduler_job"] == job
    return bool(same and (earlier["status"] in {"stopped", "running"} or was_requeued(os.environ)))


def completed_by_this_job(plan: Plan, *, lock_sha256: str) -> bool:
    """Whether an earlier execution of this job has completed the run.

    This happens when a job is told to stop in its last moment: the scheduler requeues it although its run is complete.
    """
    manifest = _planned_manifest(plan)
    job = scheduler_job(os.environ)
    return bool(
        manifest
        and was_requeued(os.environ) is not False
        and (manifest["status"], manifest["host"]["scheduler_job"]) == ("complete", job)
        and manifest["lock_sha256"] == lock_sha256
    )


def newest_version(plan: Plan) -> Version | None:
    """The newest sound version of the run. Removes half-written versions of killed attempts, so no rank may run."""
    store = CheckpointStore(plan.checkpoint_folder, keep=plan.training.keep_during_run)
    store.discard_partial()
    return store.newest()


def _interrupted_attempt(plan: Plan) -> dict[str, Any] | None:
    """The manifest of the last attempt at the same cell and training, if that attempt did not complete."""
    manifest = _planned_manifest(plan)
    return manifest if manifest and manifest["status"] != "complete" else None


def _planned_manifest(plan: Plan) -> dict[str, Any] | None:
    """The manifest of the last attempt at the same cell and training. None: there is no such attempt."""
    if not (plan.run_folder / MANIFEST).exists():
        return None
    try:
        manifest = read_json(plan.run_folder / MANIFEST)
        planned = Plan.read(plan.run_folder / PLAN)
    except RunFolderError as error:
        log.info("the earlier attempt cannot be continued: %s", error)
        return None
    same = (planned.cell, planned.training) == (plan.cell, plan.training)
    return manifest if same else None
