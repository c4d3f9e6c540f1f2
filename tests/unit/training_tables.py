"""Invented rows of the tables on undisturbed training and its machine, for `figure_tables`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ckptbench.analysis.tables.columns import SETUP

Setup = dict[str, Any]
SAMPLES = 10_000


def run_name(setup: Setup, repeat: int) -> str:
    """The name of a run of the setup."""
    return "-".join([*map(str, (setup[name] for name in SETUP)), f"rep{repeat}"])


def scaling(setup: Setup, *, reference: int, shared_cores: bool) -> Setup:
    """`reference`: the number of ranks to which others are compared. `shared_cores`: as in `Study`."""
    base = {"chainer": 60.0, "pytorch": 160.0, "tensorflow": 110.0}.get(setup["framework"], 140.0)
    base *= 40 if setup["measured_on"] == "gpu" else 1
    efficiency = (setup["ranks"] / reference) ** -0.12
    if shared_cores:
        efficiency *= reference / setup["ranks"]
    rate = base * setup["ranks"] * efficiency
    allowed = base * (reference if shared_cores else setup["ranks"])
    return setup | {
        "repeats": 3,
        "steps": 300,
        "samples_per_s": rate,
        "samples_per_s_lo": 0.96 * rate,
        "samples_per_s_hi": 1.03 * rate,
        "reference_ranks": reference,
        "allowed_samples_per_s": allowed if setup["measured_on"] == "cpu" else float("nan"),
        "efficiency": efficiency,
        "efficiency_lo": 0.97 * efficiency,
        "efficiency_hi": 1.03 * efficiency,
    }


def events_of(curves: Iterable[Setup]) -> dict[str, list[Setup]]:
    """Rows of the tables of steps, epochs and evaluations: of one rank that has one step an epoch."""
    rows: dict[str, list[Setup]] = {"steps": [], "epochs": [], "evaluations": []}
    for each in curves:
        event = {"run": each["run"], "rank": 0, "epoch": each["epoch"], "start_ns": 0}
        rows["steps"].append({**event, "step": each["epoch"], "loss": each["training_loss"]})
        rows["epochs"].append({**event, "samples": SAMPLES})
        loss, right = (SAMPLES * each[name] for name in ("test_loss", "test_accuracy"))
        rows["evaluations"].append({**event, "samples": SAMPLES, "loss_sum": loss, "correct": round(right)})  # fmt: skip
    return rows


def whole_curve(setup: Setup, repeats: int) -> Iterator[Setup]:
    """Loss and accuracy by epoch of runs that nothing disturbs."""
    speed = {"chainer": 0.35, "pytorch": 0.42, "tensorflow": 0.38}.get(setup["framework"], 0.4)
    for repeat in range(repeats):
        for epoch in range(setup["epochs"]):
            loss = 2.3 * np.exp(-speed * (epoch + 1)) * (1 + 0.06 * repeat)
            yield {
                "run": run_name(setup, repeat),
                "epoch": epoch,
                "training_loss": loss,
                "test_loss": 1.1 * loss,
                "test_accuracy": 1 - 0.4 * loss,
            }


def machine(on: str, repeats: int) -> Setup:
    return {
        "measured_on": on,
        "device": "cpu" if on == "cpu" else "Tesla V100-SXM2-16GB",
        "host": "node1",
        "cpu": "AMD EPYC 7B13",
        "cores": 2,
        "checkpoint_file_system": "ext4",
        "revision": "0" * 40,
        "dirty": False,
        "first_date": "2026-01-02",
        "last_date": "2026-01-02",
        "runs": 24,
        "continued": 0,
        "repeats_min": repeats,
        "repeats_max": repeats,
        "nodes_max": 1,
        "versions": "{}",
    }
