"""A small study for tests of the decision: plausible costs of two strategies and two recoveries, on two and on four ranks.

Another framework has a strategy with levels, on four ranks.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from labelled import with_specs

from ckptbench.config.decision import DecisionSection
from ckptbench.decide.inputs import DECISION_COSTS

ROOT = Path(__file__).resolve().parents[1]
RATES = ROOT / "config" / "failures"
CHOICES = DecisionSection(gpus=[1024, 16384, 131072])
SHARED = {
    "today": False,
    "framework": "pytorch", "model": "resnet50", "dataset": "digits", "batch_size": 32, "epochs": 3, "optimizer": "sgd", "precision": "fp32", "deterministic": False,
    "accelerator": "cpu", "measured_on": "cpu", "interval": "e1", "steps_per_epoch": 40, "bytes": 189e6, "copied": False, "growth": "",
    "source": "measured on 2026-11-23 on a small virtual machine",
}  # fmt: skip
STRATEGIES: dict[str, dict[str, Any]] = {
    "native": {"format": "torch_save", "stall_s": (1.9, 1.7, 2.15), "slowdown_s": (0.0, None, None), "durable_s": (1.95, 1.7, 2.2)},
    "async": {"format": "torch_save", "stall_s": (0.21, 0.16, 0.27), "slowdown_s": (0.4, -0.2, 1.0), "durable_s": (2.6, 2.3, 2.9)},
}  # fmt: skip
LEVELS = "deepfreeze memory=1 shared=6"
IN_LEVELS: dict[str, Any] = {
    "framework": "tensorflow", "strategy": LEVELS, "format": "safetensors", "stall_s": (0.05, 0.04, 0.07), "slowdown_s": (0.2, 0.1, 0.3),
    "durable_s": (0.4, 0.35, 0.45), "shared_durable_s": (2.4, 2.2, 2.7), "shared_every": 6,
}  # fmt: skip
RECOVERIES: dict[str, dict[str, Any]] = {
    "restart": {"down_s": (9.5, 8.1, 11.2), "pause_s": (0.0, None, None), "survived": 0.0, "survived_of": None, "replaces": True, "down_from": "failures", "note": ""},
    "ulfm": {"down_s": (9.9, None, None), "pause_s": (1.4, 0.9, 2.1), "survived": 0.9, "survived_of": 10, "replaces": False, "down_from": "restarts", "note": "only one repeat: no interval"},
}  # fmt: skip


def costs() -> pd.DataFrame:
    """The table `decision_costs` of it."""
    plain = [
        {"strategy": strategy, "shared_every": 1, "shared_durable_s": saved["durable_s"], "ranks": ranks, **saved}
        for ranks in (2, 4)
        for strategy, saved in STRATEGIES.items()
    ]  # fmt: skip
    return DECISION_COSTS.rows(
        with_specs({**SHARED, "recovery": recovery, **_times({"step_s": _step_s(saved["ranks"]), "slower": _slower(saved, recovery), **saved, **recovered})})
        for saved in (*plain, {**IN_LEVELS, "ranks": 4})
        for recovery, recovered in RECOVERIES.items()
    )  # fmt: skip


def _step_s(ranks: int) -> tuple[float, float, float]:
    return 1.1 * ranks / 2, 1.05 * ranks / 2, 1.16 * ranks / 2


def _slower(saved: dict[str, Any], recovery: str) -> tuple[float, float | None, float | None]:
    """Where nothing fails, steps of one framework take longer with `ulfm`."""
    is_slower = recovery == "ulfm" and saved["strategy"] == LEVELS
    return (1.04, 1.01, 1.07) if is_slower else (1.0, None, None)


def _times(values: dict[str, Any]) -> dict[str, Any]:
    """Each time with the ends of its interval, and whatever else there is."""
    row: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            ends = zip(("", "_lo", "_hi"), value, strict=True)
            row |= {f"{name}{end}": math.nan if each is None else each for end, each in ends}
        else:
            row[name] = value
    return row
