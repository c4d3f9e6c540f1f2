"""Runs whose one rank runs inside the test's process, so that a test needs no environment of a framework."""

from __future__ import annotations

import json

import pytest
from numpy_framework import ALONE, NumpyFramework, Unasked

from ckptbench.common.errors import RunStopped
from ckptbench.launch.run import Execution, run_cell
from ckptbench.launch.series import AttemptSeries
from ckptbench.run.layout import trace_path
from ckptbench.run.plan import Plan
from ckptbench.training.rank import run_rank


def die_after(monkeypatch: pytest.MonkeyPatch, steps: int, error: BaseException) -> None:
    """Let training end with `error` when it has made this many steps."""
    step, done = NumpyFramework.step, [0]

    def dying(self: NumpyFramework, *batch: object) -> float:
        if done[0] == steps:
            raise error
        done[0] += 1
        return step(self, *batch)  # type: ignore[arg-type]

    monkeypatch.setattr(NumpyFramework, "step", dying)


def interrupt(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch, *, steps: int
) -> None:
    """Run the cell, and end it as Ctrl-C does after this many steps."""
    with monkeypatch.context() as patch:
        die_after(patch, steps, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run_cell(plan, execution)


def stop(plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Run the cell, and have it told to stop after this step."""
    stop_after(monkeypatch, after)
    with pytest.raises(RunStopped, match="by SIGUSR2"):
        run_cell(plan, execution)
    stop_after(monkeypatch, None)


def last_digest(plan: Plan) -> dict[str, str]:
    lines = trace_path(plan.run_folder, 0).read_text().splitlines()
    digests = [event for event in map(json.loads, lines) if event["event"] == "digest"]
    found: dict[str, str] = digests[-1]["tensors"]
    return found


def versions(plan: Plan) -> list[str]:
    return sorted(path.name for path in plan.checkpoint_folder.glob("version-*"))


def in_job(monkeypatch: pytest.MonkeyPatch, job_id: str, *, restarted: bool = False) -> None:
    """As a job of Grid Engine on this host."""
    monkeypatch.setenv("SGE_ROOT", "/sge")
    monkeypatch.setenv("JOB_ID", job_id)
    monkeypatch.setenv("RESTARTED", str(int(restarted)))


def stop_after(monkeypatch: pytest.MonkeyPatch, last_step: int | None) -> None:
    """Have the launcher's ranks told to stop after this step; None: never again."""

    def launch(attempts: AttemptSeries) -> None:
        plan = attempts.plan
        run_rank(plan, ALONE, Unasked(last_step), started_ns=2)
        if last_step is not None:
            raise RunStopped("SIGUSR2", last_step)

    monkeypatch.setattr(AttemptSeries, "launch", launch)
