"""Which attempt at its run this is, and what it goes on from."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

from ckptbench.allocation import scheduler_job, was_requeued
from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.checkpoints.version import Version
from ckptbench.errors import LaunchError, RunFolderError
from ckptbench.manifest import FINAL_ARRAYS, MANIFEST, SEAL, read_json, trace_path
from ckptbench.plan import PLAN, Plan

log = logging.getLogger(__name__)


def prepare(plan: Plan, *, logs: Path, resume: bool) -> tuple[Plan, dict[str, Any]]:
    """Empty the run folder, or make the plan go on from the newest version in it.

    What an earlier attempt left is removed; with `resume`, or where this job's scheduler has requeued it, it is gone
    on from where it has a complete version. Also returns what the manifest says of the attempts so far: how often the
    scheduler has requeued this run, and, where it goes on, when it began.
    """
    (plan.run_folder / SEAL).unlink(missing_ok=True)
    earlier = _interrupted_attempt(plan)
    requeued = earlier is not None and _is_requeue(earlier)
    requeues = earlier.get("requeues", 0) + 1 if earlier and requeued else 0
    if earlier is not None and (resume or requeued) and (version := _newest(plan)):
        carried = {"requeues": requeues, "started": earlier["started"]}
        return _resumed(plan, version, attempt=earlier["attempts"] + 1), carried
    for pattern in ("trace-*.jsonl", FINAL_ARRAYS):
        for path in plan.run_folder.glob(pattern):
            path.unlink()
    for path in (plan.checkpoint_folder, logs):
        if path.exists():
            shutil.rmtree(path)
    return plan, {"requeues": requeues}


def _is_requeue(earlier: dict[str, Any]) -> bool:
    """Whether the earlier attempt was made by the very job that this is: schedulers requeue under the same id.

    One that failed or was interrupted by hand, as in an interactive job, is none: it is made again.
    """
    job = scheduler_job(os.environ)
    same = job is not None and earlier["host"]["scheduler_job"] == job
    return bool(same and (earlier["status"] in {"stopped", "running"} or was_requeued(os.environ)))


def completed_by_this_job(plan: Plan, *, lock_sha256: str) -> bool:
    """A job told to stop in its last moment is requeued although its run is whole."""
    manifest = _planned_manifest(plan)
    job = scheduler_job(os.environ)
    return bool(
        manifest
        and was_requeued(os.environ) is not False
        and (manifest["status"], manifest["host"]["scheduler_job"]) == ("complete", job)
        and manifest["lock_sha256"] == lock_sha256
    )


def _newest(plan: Plan) -> Version | None:
    store = CheckpointStore(plan.checkpoint_folder, keep=plan.training.keep_during_run)
    store.discard_partial()
    return store.newest()


def _resumed(plan: Plan, version: Version, *, attempt: int) -> Plan:
    log.info("attempt %d goes on from %s", attempt, version.folder)
    kills = len(kill_events(plan))
    return dataclasses.replace(plan, attempt=attempt, resume_from=version.folder, kills=kills)


def after_kill(plan: Plan) -> Plan | None:
    """The next attempt at a run that was just killed as its history asks; None where it was not.

    Raises LaunchError where no version is left to go on from.
    """
    kills = kill_events(plan)
    if len(kills) == plan.kills:
        return None
    last = kills[-1]
    moment = f'at stage "{last["inside"]}" of the checkpoint of' if last["inside"] else "after"
    log.info("rank %d killed itself %s step %d, as planned", last["rank"], moment, last["step"])
    version = _newest(plan)
    if version is None:
        raise LaunchError(
            f"{plan.checkpoint_folder} holds no sound version to restart from; see the log above"
        )
    return _resumed(plan, version, attempt=plan.attempt + 1)


def kill_events(plan: Plan) -> list[dict[str, Any]]:
    """What killed ranks of this run have written about it, in the order of the attempts."""
    found = []
    for rank in range(plan.cell.ranks):
        path = trace_path(plan.run_folder, rank)
        attempt = 0
        for event in _events(path):
            if (event["event"], event.get("name")) == ("phase", "launch"):
                attempt += 1
            elif event["event"] == "kill":
                found.append({"attempt": attempt, "rank": rank, **event})
    fields = ("attempt", "rank", "step", "epoch", "inside")
    return sorted(
        ({name: kill[name] for name in fields} for kill in found), key=itemgetter("attempt")
    )


def _events(trace: Path) -> Iterator[dict[str, Any]]:
    """Those of whole lines: a killed rank's last one may be torn."""
    content = trace.read_text("utf-8") if trace.exists() else ""
    for line in content[: content.rfind("\n") + 1].splitlines():
        yield json.loads(line)


def _interrupted_attempt(plan: Plan) -> dict[str, Any] | None:
    """The manifest of an attempt at this very plan that did not end, None where there is none."""
    manifest = _planned_manifest(plan)
    return manifest if manifest and manifest["status"] != "complete" else None


def _planned_manifest(plan: Plan) -> dict[str, Any] | None:
    """The manifest of the last attempt at this very plan, None where there is none."""
    if not (plan.run_folder / MANIFEST).exists():
        return None
    try:
        manifest = read_json(plan.run_folder / MANIFEST)
        planned = Plan.read(plan.run_folder / PLAN)
    except RunFolderError as error:
        log.info("nothing to go on from: %s", error)
        return None
    same = (planned.cell, planned.training) == (plan.cell, plan.training)
    return manifest if same else None
