"""The contents of `manifest.json`, which the launcher writes when a run begins and when it ends."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ckptbench import __version__
from ckptbench.common.clock import Instant
from ckptbench.common.errors import LaunchError, RunStopped
from ckptbench.common.files import write_json
from ckptbench.common.host import host_facts, source_revision
from ckptbench.launch.allocation import granted_cores, scheduler_job
from ckptbench.launch.inheritance import recorded
from ckptbench.matrix.registry import RECOVERIES
from ckptbench.run.control.variables import steady_heap
from ckptbench.run.events import Digest, End, Event, Start, State, to_json
from ckptbench.run.layout import MANIFEST, SCHEMA_VERSION, trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.strikes import check_struck, recorded_strikes
from ckptbench.run.trace import last_events, whole_events

REPOSITORY = Path(__file__).resolve().parents[3]


def status_of(error: BaseException) -> str:
    """The `status` in `manifest.json` of a run that ended with this error."""
    if isinstance(error, RunStopped):
        return "stopped"
    return "failed" if isinstance(error, Exception) else "interrupted"


def opening_manifest(plan: Plan, lock: str) -> dict[str, Any]:
    """The fields that are known before the ranks start. `lock` is the name of the lock file of the framework's environment."""
    began = Instant.now()
    return {
        "schema_version": SCHEMA_VERSION,
        "cell_id": plan.cell.id,
        **plan.identity.to_json(),
        "seed": plan.seed,
        "status": "running",
        "attempts": plan.attempt,
        "started": iso(began.day_ns),
        "clock": str(began),
        "ended": None,
        "error": None,
        "measured_on": "gpu" if plan.cell.accelerator == "cuda" else "cpu",
        "host": {
            **host_facts(plan.checkpoint_folder),
            "cores": granted_cores(os.environ),
            "scheduler_job": scheduler_job(os.environ),
        },
        "environment": recorded({**os.environ, **steady_heap(os.environ)}),
        "ckptbench_version": __version__,
        "source": source_revision(REPOSITORY),
        "lock": lock,
    }


def measured(plan: Plan) -> dict[str, Any]:
    """The fields that come from the ranks' traces: device, versions, size of the state, failures.

    Raises LaunchError where a failure did not strike as planned, or where the replicas of the run differ.
    """
    starts: list[Start] = []
    states: list[State] = []
    replicas = {}
    survivors = _survivors(plan)
    for rank in range(plan.cell.ranks):
        path = trace_path(plan.run_folder, rank)
        start, state = last_events(path, Start, State)
        starts.append(cast(Start, start))
        states.append(cast(State, state))
        if rank in survivors:
            (digest,) = last_events(path, Digest)
            replicas[rank] = cast(Digest, digest).tensors
    check_replicas(replicas)
    nodes = [start.host for start in starts]
    check_struck(plan, [failure.victims(nodes)[0] for failure in plan.failures], survivors)
    return {
        "device": starts[0].device,
        "versions": starts[0].versions,
        "failures": [failure.to_json() for failure in plan.failures],
        "strikes": [to_json(strike) for strike in recorded_strikes(plan.run_folder)],
        "hosts": nodes,
        "parameters": states[0].parameters,
        "state_bytes": {
            "model": states[0].model,
            "optimizer": states[0].optimizer,
            "second_moments": states[0].second_moments,
            "rest": sum(state.rest for state in states),
        },
    }


def _survivors(plan: Plan) -> list[int]:
    """The ranks that trained to the end of a complete run: all, unless survivors went on without the others."""
    ranks = range(plan.cell.ranks)
    if not RECOVERIES[plan.cell.recovery.name].elastic:
        return list(ranks)
    return [rank for rank in ranks if _last(trace_path(plan.run_folder, rank)) is End]


def _last(path: Path) -> type[Event] | None:
    kinds = [type(event) for event in whole_events(path)]
    return kinds[-1] if kinds else None


def check_replicas(digests: Mapping[int, Mapping[str, str]]) -> None:
    """Raises LaunchError where ranks ended with different parameters or momenta. `digests` has those of every rank.

    Running statistics may differ, because every rank keeps its own. Any other difference means that the gradients
    were not averaged.
    """
    first, *others = digests
    for rank in others:
        different = [
            name
            for name, bits in digests[first].items()
            if digests[rank].get(name) != bits and not name.endswith((".mean", ".variance"))
        ]
        if different:
            raise LaunchError(
                f"rank {rank} ended with another {different[0]} than rank {first} ({len(different)} tensors "
                "differ): gradients were not averaged, so this is no result"
            )


def close_manifest(plan: Plan, manifest: dict[str, Any], *, status: str, error: str | None) -> None:
    """Add to the manifest how and when the run ended, and write it."""
    ended = Instant.now()
    manifest |= {
        "status": status,
        "error": error,
        "ended": iso(ended.day_ns),
        "duration_s": Instant.read(manifest["clock"]).seconds_to(ended),
    }
    write_json(plan.run_folder / MANIFEST, manifest)


def iso(at_ns: int) -> str:
    """A time of day, in ns since 1970, as manifests write it."""
    return datetime.datetime.fromtimestamp(at_ns / 1e9, datetime.UTC).isoformat(
        timespec="milliseconds"
    )
