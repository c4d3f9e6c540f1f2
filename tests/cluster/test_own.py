"""A study of an own training through real schedulers: each run is a job, and the probe sees the ranks that the command starts."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import pytest

from ckptbench.own.record import read_run
from tests.cluster.cluster import Cluster, client_of
from tests.cluster.studies import end_well, resources, started
from tests.own_training import TRAINING, complete_runs, write_study
from tests.study.checkout import Checkout

PATIENCE_S = 600
OWN: dict[str, dict[str, Any]] = {
    # Two nodes, a rank each.
    "slurm": {"ranks": 2, "command": f"srun {sys.executable} train.py {{folder}} {{interval}}"},
    "gridengine": {},
    "pbs": {},
}
TOGETHER = """
import os, sys, time
from pathlib import Path

here = Path(sys.argv[1])
Path(here, f"rank-{os.environ.get('SLURM_PROCID', 0)}").touch()
while len([*here.glob("rank-*")]) < int(os.environ.get("SLURM_NTASKS", 1)):
    time.sleep(0.01)
"""
"""Ranks begin to train when all are there, as those of a real training do."""
SCHEDULERS = {"slurm": "slurm", "gridengine": "gridengine", "pbs": "pbs"}


@pytest.mark.parametrize("profile", OWN)
def test_each_run_is_a_job_under_the_probe(
    profile: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster: Cluster = request.getfixturevalue(SCHEDULERS[profile])
    folder = tmp_path_factory.mktemp(f"own-{profile}") / "checkout"
    checkout = Checkout.make(folder, profile, *resources(profile))
    study = write_study(folder, code=TOGETHER + TRAINING, values={"interval": [5]}, **OWN[profile])
    with client_of(cluster) if profile == "pbs" else nullcontext():
        with started(checkout, "runs", study=study) as process:
            end_well(checkout, process, PATIENCE_S)
        again = checkout.run("-n", "runs", study=study)
    runs = complete_runs(folder)
    assert set(runs) == {"baseline-rep0", "interval_5-rep0"}
    jobs = {run["host"]["scheduler_job"] for run in runs.values()}
    assert len(jobs) == 2
    for name in runs:
        summary = read_run(folder / "results" / "own" / "runs" / name).summary
        assert (summary["ranks"], summary["updates"]) == (OWN[profile].get("ranks", 1), 20)
    assert runs["interval_5-rep0"]["checkpoints"] == 4
    assert "Nothing to be done" in again.stdout
