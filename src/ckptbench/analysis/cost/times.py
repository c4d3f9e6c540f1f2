"""What one run spent its time on, without the warm-up: what both estimates of overhead start from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.grouping import by_run
from ckptbench.analysis.statistics import Floats
from ckptbench.cells import WHOLE

STALL, WRITE, INSIDE_S, INSIDE_STEPS = range(4)
"""Columns of `RunTimes.checkpoints`."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Timings of one run. Clocks of different ranks are never compared: they may be on different hosts."""

    epoch_s: Floats
    """Per epoch, the window of the slowest rank: steps and checkpoints, no evaluation."""
    outside_s: Floats
    """Periods of the steps outside every save, in order, on the rank that writes (on rank 0 of a baseline).

    A period begins where the step, checkpoint or start of the epoch before it ended. The writing rank's are
    the ones to take: the others may spend the step after a checkpoint waiting for it.
    """
    checkpoints: Floats
    """Shape (checkpoints, 4): STALL of the slowest rank, the framework's own WRITE as far as it stalled,
    and INSIDE_S, INSIDE_STEPS: periods and number of the steps that began while the save went on behind them.
    """

    @property
    def time_s(self) -> float:
        return float(self.epoch_s.sum())

    @property
    def period_s(self) -> float:
        """Mean period of the steps outside every save; NaN where there is none."""
        return float(self.outside_s.mean()) if len(self.outside_s) else math.nan

    @property
    def steps(self) -> float:
        return len(self.outside_s) + float(self.checkpoints[:, INSIDE_STEPS].sum())


def timed(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of the table `runs` that timings are taken from: valid, and of no run made for the resume proof."""
    return runs[runs["timing_valid"] & (runs["history"] == WHOLE)]


def run_times(tables: Mapping[str, pd.DataFrame]) -> dict[str, RunTimes]:
    """By run, of the runs that are timed."""
    valid = timed(tables["runs"])
    epochs, steps, checkpoints = (
        by_run(tables[name]) for name in ("epochs", "steps", "checkpoints")
    )
    none = tables["checkpoints"].iloc[:0]
    return {
        run: _of_run(epochs[run], steps[run], checkpoints.get(run, none), warmup_steps)
        for run, warmup_steps in zip(valid["run"], valid["warmup_steps"], strict=True)
    }


def _of_run(
    epochs: pd.DataFrame, steps: pd.DataFrame, checkpoints: pd.DataFrame, warmup_steps: int
) -> RunTimes:
    timed_s = epochs["duration_s"] - epochs["warmup_s"]
    checkpoints = checkpoints[checkpoints["step"] >= warmup_steps]
    written = checkpoints[checkpoints["writes"]]
    writer = int(written["rank"].min()) if len(written) else 0
    written = written[written["rank"] == writer]
    own_steps = steps[(steps["rank"] == writer) & ~steps["warmup"]]
    save = _save_of_step(own_steps, written)
    period_s = (own_steps["wait_s"] + own_steps["duration_s"]).to_numpy()
    stall_s = checkpoints.groupby("step")["stall_s"].max().to_numpy()
    inside, saves = save >= 0, len(written)
    return RunTimes(
        epoch_s=timed_s.groupby(epochs["epoch"]).max().to_numpy(),
        outside_s=period_s[~inside],
        checkpoints=np.column_stack(
            [
                stall_s,
                np.minimum(stall_s, written["write_s"].to_numpy()),
                np.bincount(save[inside], period_s[inside], saves),
                np.bincount(save[inside], minlength=saves),
            ]
        ),
    )


def _save_of_step(steps: pd.DataFrame, written: pd.DataFrame) -> NDArray[np.int64]:
    """For each step the index of the save that was not yet durable when the step began; -1 for none."""
    if written.empty:
        return np.full(len(steps), -1)
    began_ns = written["start_ns"].to_numpy()
    durable_ns = began_ns + np.rint(written["durable_s"].to_numpy() * 1e9).astype(np.int64)
    latest = np.searchsorted(began_ns, steps["start_ns"].to_numpy(), side="right") - 1
    busy_until_ns = np.maximum.accumulate(durable_ns)
    return np.where(steps["start_ns"].to_numpy() < busy_until_ns[latest], latest, -1)
