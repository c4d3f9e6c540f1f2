"""What one run spent its time on, without the warm-up: what both estimates of overhead start from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.cost.statistics import Floats
from ckptbench.matrix.registry import WHOLE

BLOCKED, INSIDE_S, INSIDE_STEPS, STEADY = range(4)
"""Columns of `RunTimes.checkpoints`."""
COLUMNS_READ = {
    "epochs": ("epoch", "duration_s", "warmup_s"),
    "steps": ("rank", "start_ns", "duration_s", "wait_s", "warmup"),
    "checkpoints": (
        "rank",
        "step",
        "start_ns",
        "stall_s",
        "save_hold_s",
        "writes",
        "update_hold_s",
        "ended_s",
        "steady",
    ),
}
"""Which columns of which tables the times come from."""

Arrays = dict[str, NDArray[Any]]
"""Columns of one run by name."""


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
    """One row per checkpoint, four columns. BLOCKED: the stall and the wait of the next save, on the slowest rank.
    INSIDE_S and INSIDE_STEPS: time and number of steps that began before the save and its removal ended; waits for the
    capture are in BLOCKED. STEADY: 1 or 0.
    """

    @property
    def time_s(self) -> float:
        return float(self.epoch_s.sum())

    @property
    def period_s(self) -> float:
        """Mean period of the steps outside every save; NaN where there is none."""
        return float(self.outside_s.mean()) if len(self.outside_s) else math.nan

    @property
    def steady(self) -> RunTimes:
        """The same run with no checkpoints but those of the steady state."""
        chosen = self.checkpoints[self.checkpoints[:, STEADY] == 1]
        return RunTimes(self.epoch_s, self.outside_s, chosen)

    @property
    def steps(self) -> float:
        return len(self.outside_s) + float(self.checkpoints[:, INSIDE_STEPS].sum())


def with_valid_timing(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of the table `runs` that timings are taken from: valid, and of no run made for the resume proof."""
    return runs[runs["timing_valid"] & (runs["history"] == WHOLE)]


def run_times(tables: Mapping[str, pd.DataFrame], runs: pd.DataFrame) -> dict[str, RunTimes]:
    """By run, of these rows of the table `runs`, all of them `with_valid_timing`."""
    epochs, steps, checkpoints = (
        _arrays_by_run(tables[name], columns) for name, columns in COLUMNS_READ.items()
    )
    none = {
        column: tables["checkpoints"][column].to_numpy()[:0]
        for column in COLUMNS_READ["checkpoints"]
    }
    return {
        run: _of_run(epochs[run], steps[run], checkpoints.get(run, none), warmup_steps)
        for run, warmup_steps in zip(runs["run"], runs["warmup_steps"], strict=True)
    }


def _arrays_by_run(frame: pd.DataFrame, columns: Sequence[str]) -> dict[str, Arrays]:
    """Arrays rather than frames: pandas takes longer to open a small frame than its numbers take."""
    run, names = pd.factorize(frame["run"])
    order = np.argsort(run, kind="stable")
    starts = np.cumsum(np.bincount(run))[:-1]
    parts = [np.split(frame[column].to_numpy()[order], starts) for column in columns]
    values = zip(*parts, strict=True)
    rows = (dict(zip(columns, of_run, strict=True)) for of_run in values)
    return dict(zip(names, rows, strict=False))  # of no rows, split makes one part


def _of_run(epochs: Arrays, steps: Arrays, checkpoints: Arrays, warmup_steps: int) -> RunTimes:
    checkpoints = _where(checkpoints["step"] >= warmup_steps, checkpoints)
    written = _where(checkpoints["writes"], checkpoints)
    writer = int(written["rank"].min()) if len(written["rank"]) else 0
    written = _where(written["rank"] == writer, written)
    own_steps = _where((steps["rank"] == writer) & ~steps["warmup"], steps)
    save = _save_of_step(own_steps, written)
    period_s = own_steps["wait_s"] + own_steps["duration_s"]
    blocked_s = _largest(checkpoints["stall_s"] + checkpoints["save_hold_s"], checkpoints["step"])
    inside, saves = save >= 0, len(written["step"])
    return RunTimes(
        epoch_s=_largest(epochs["duration_s"] - epochs["warmup_s"], epochs["epoch"]),
        outside_s=period_s[~inside],
        checkpoints=np.column_stack(
            [
                blocked_s,
                np.bincount(save[inside], period_s[inside], saves) - written["update_hold_s"],
                np.bincount(save[inside], minlength=saves),
                written["steady"],
            ]
        ),
    )


def _where(chosen: NDArray[np.bool_], arrays: Arrays) -> Arrays:
    return {name: array[chosen] for name, array in arrays.items()}


def _largest(values: Floats, keys: NDArray[np.int64]) -> Floats:
    """The largest value of each key, in the order of the keys."""
    different, where = np.unique(keys, return_inverse=True)
    largest = np.full(len(different), -np.inf)
    np.maximum.at(largest, where, values)
    return largest


def _save_of_step(steps: Arrays, written: Arrays) -> NDArray[np.int64]:
    """For each step: index of the save that was still going on (removal included) at its start, or -1."""
    start_ns, began_ns = steps["start_ns"], written["start_ns"]
    if not len(began_ns):
        return np.full(len(start_ns), -1)
    ended_ns = began_ns + np.rint(written["ended_s"] * 1e9).astype(np.int64)
    latest = np.searchsorted(began_ns, start_ns, side="right") - 1
    busy_until_ns = np.maximum.accumulate(ended_ns)
    return np.where(start_ns < busy_until_ns[latest], latest, -1)
