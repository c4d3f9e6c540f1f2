"""Simulated studies: their collected tables are drawn at random around times that are known, for `coverage.py`.

Every simulated study has the shape of the default one: three frameworks on one and two ranks, each with a baseline, a
baseline in deterministic mode, and a run of each strategy with a checkpoint every epoch.

Two kinds of chance are drawn, both lognormal. Within a run, each step differs by 10 % and each checkpoint by 20 %.
From run to run, all steps of a run are faster or slower by the spread that is asked for, and so, independently, are all its
checkpoints.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from labelled import with_specs
from numpy.typing import NDArray

from ckptbench.analysis.collect.machine import MACHINE
from ckptbench.analysis.collect.rank_events import EVALUATIONS
from ckptbench.analysis.tables.columns import LOST_PARTS
from ckptbench.matrix import registry

FRAMEWORKS = ("chainer", "pytorch", "tensorflow")
RANKS = (1, 2)
BATCH_SIZE = 16
STEP_S = {"chainer": 1.0, "pytorch": 0.5, "tensorflow": 0.8}
"""Mean of a step on one rank."""
TWO_RANKS, DETERMINISTIC = 1.5, 1.1
"""How much longer a step takes on two ranks, and in deterministic mode."""
STALL_S = {"chainer": 4.0, "pytorch": 0.5, "tensorflow": 1.0}
DURABLE_S = {"chainer": 5.0, "pytorch": 2.0, "tensorflow": 3.0}
WITHIN_STEPS, WITHIN_STALLS = 0.10, 0.20
"""Standard deviation of the logarithm, within a run."""

BEHIND_STEPS = 3
"""Number of steps that begin while a save goes on in the background. After the last checkpoint there are none."""
LOST_S, WITHIN_LOSSES = 10.0, 0.6
"""What failures cost a struck run, and the standard deviation of the logarithm: as two of them do that come at random."""
RANKS_USED, WITHIN_USED = 0.8, 0.05
"""Part of the ranks that trained after failures, and the standard deviation of the logarithm."""
BASELINE_BYTES, WITHIN_BYTES = 2e9, 2e6
"""Memory of a baseline, and the standard deviation of every sample of memory."""
GROWTH_BYTES = 2e6
"""From one checkpoint to the next."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a checkpoint of a strategy costs."""

    stall: float
    """Its stall ÷ that of `native`."""
    slower: float
    """How many times as long a step takes while a save goes on in the background. 1: no save does."""
    peak_bytes: float
    """Memory above the baseline's."""


STRATEGIES = {
    "native": Costs(1.0, 1.0, 1e8),
    "async": Costs(0.3, 1.3, 1e9),
    "deepfreeze": Costs(0.05, 1.01, 5e8),
}
"""The last one's slowdown is less than the noise: in some runs it is measured below zero."""

Floats = NDArray[np.float64]
Tables = dict[str, pd.DataFrame]
Row = Mapping[str, Any]
"""A row of any table, by the names of its columns."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is the same in every simulated study."""

    repeats: int
    frameworks: tuple[str, ...] = FRAMEWORKS
    ranks: tuple[int, ...] = RANKS
    strategies: tuple[str, ...] = ("native",)
    faults: tuple[str, ...] = ()
    """Traces of failures, as tables name them. Each strikes a further run of every strategy."""
    epochs: int = 3
    steps_per_epoch: int = 8
    uneven: float = 1.0
    """How many times as much as other runs those of the last framework differ."""

    def runs(self) -> pd.DataFrame:
        """The collected table `runs`, as far as others read it."""
        runs = pd.DataFrame(self._rows())
        shared = [
            name
            for name in runs
            if name not in ("run", "timing_valid") and not name.startswith("history")
        ]
        whole = runs[runs["history"] == "whole"].set_index(shared)["run"]
        systems = ["framework", "ranks", "deterministic", "repeat"]
        baselines = runs[runs["interval"] == "never"].set_index(systems)["run"]
        return runs.assign(
            reference=whole.loc[list(runs[shared].itertuples(index=False))].to_numpy(),
            baseline=baselines.loc[list(runs[systems].itertuples(index=False))].to_numpy(),
        )

    def _rows(self) -> Iterator[dict[str, Any]]:
        whole = ("whole", *self.faults)
        baselines = (("never", False, "native", "whole"), ("never", True, "native", "whole"))
        checkpointed = itertools.product(["e1"], [False], self.strategies, whole)
        kinds = (*baselines, *checkpointed)
        matrix = itertools.product(self.frameworks, self.ranks, kinds, range(self.repeats))
        for number, (framework, ranks, kind, repeat) in enumerate(matrix):
            interval, deterministic, strategy, history = kind
            yield with_specs(
                {
                    "run": f"{number:04}",
                    "framework": framework,
                    "model": "resnet50",
                    "dataset": "digits",
                    "ranks": ranks,
                    "batch_size": BATCH_SIZE,
                    "epochs": self.epochs,
                    "optimizer": "sgd",
                    "precision": "fp32",
                    "deterministic": deterministic,
                    "accelerator": "cpu",
                    "measured_on": "cpu",
                    "strategy": strategy,
                    "format": "none" if interval == "never" else "hdf5",
                    "interval": interval,
                    "history": history,
                    "recovery": "restart",
                    "omit": "nothing",
                    "cache": "warm",
                    "repeat": repeat,
                    "timing_valid": history == "whole",
                    "warmup_steps": 0,
                    "steps_per_epoch": self.steps_per_epoch,
                    "host": "node1",
                    "device": "cpu",
                    "cores": 2,
                    "nodes": 1,
                    "blocking": registry.STRATEGIES[strategy].blocking,
                    "shared_every": 1,
                    "checkpoint_file_system": "ext4",
                }
            )


class Simulation:
    """Draws the collected tables of one study after another."""

    def __init__(self, shape: Shape, spread: float, random: np.random.Generator) -> None:
        self.shape, self._random = shape, random
        self._aside, self._failing, self._training = random.spawn(3)
        """These draw what only the tables `strategies` and `goodput` read. Other tables do not depend on it."""
        self.runs = shape.runs()
        last = self.runs["framework"] == shape.frameworks[-1]
        self._spread = spread * np.where(last, shape.uneven, 1.0)
        self._step_s = np.array([step_s(row) for row in self.runs.to_dict("records")])
        self._writes = (self.runs["interval"] != "never").to_numpy()
        costs = [STRATEGIES[name] for name in self.runs["strategy"]]
        frameworks = self.runs["framework"]
        self._stall_s = frameworks.map(STALL_S).to_numpy() * [own.stall for own in costs]
        self._durable_s = frameworks.map(DURABLE_S).to_numpy()
        self._slower = np.array([own.slower for own in costs]) ** self._writes
        self._peak_bytes = np.array([own.peak_bytes for own in costs]) * self._writes

    def collected(self) -> Tables:
        """The tables that are collected from one study, as far as derived ones read them."""
        shape = self.shape
        steps = shape.epochs * shape.steps_per_epoch
        step_s = self._drawn(self._step_s, steps, WITHIN_STEPS)
        step_s[:, self._is_behind()] *= self._slower[:, np.newaxis]
        stall_s = self._drawn(self._stall_s * self._writes, shape.epochs, WITHIN_STALLS)
        after_s = np.zeros_like(step_s)  # the stall after each step
        after_s[:, shape.steps_per_epoch - 1 :: shape.steps_per_epoch] = stall_s
        end_s = np.cumsum(step_s + after_s, axis=1) - after_s
        lost_s = self._lost_s()
        return {
            "runs": self.runs.assign(wall_s=(step_s + after_s).sum(axis=1) + lost_s),
            "failures": self._failures(lost_s),
            "lineage": self._lineage(),
            "steps": self._steps(step_s, end_s),
            "epochs": self._epochs((step_s + after_s).reshape(len(step_s), shape.epochs, -1)),
            "checkpoints": self._checkpoints(stall_s, step_s, end_s),
            "evaluations": EVALUATIONS.rows([]),
            "memory": self._memory(),
            "machine": MACHINE.rows([]),  # nothing disturbs a simulated run
        }

    def _lost_s(self) -> Floats:
        """What failures cost each run, shape (runs,)."""
        struck = (self.runs["history"] != "whole").to_numpy()
        return struck * LOST_S * _around_one(self._failing, np.full(len(self.runs), WITHIN_LOSSES))

    def _failures(self, lost_s: Floats) -> pd.DataFrame:
        """The table `failures`: one of each struck run, of whose time a single part is known."""
        struck = (self.runs["history"] != "whole").to_numpy()
        parts = {**dict.fromkeys(LOST_PARTS, 0.0), "rest_s": lost_s[struck]}
        return self.runs.loc[struck, ["run"]].assign(**parts, total_s=lost_s[struck])

    def _lineage(self) -> pd.DataFrame:
        struck = self.runs[self.runs["history"] != "whole"]
        used = RANKS_USED * _around_one(self._training, np.full(len(struck), WITHIN_USED))
        samples = {"planned_samples": 1, "never_seen": 0}
        return struck[["run"]].assign(mean_ranks=used * struck["ranks"], **samples)

    def _is_behind(self) -> NDArray[np.bool_]:
        """Of each step of a run, whether it is one of the first after a checkpoint."""
        step = np.arange(self.shape.epochs * self.shape.steps_per_epoch)
        after = step % self.shape.steps_per_epoch < BEHIND_STEPS
        return after & (step >= self.shape.steps_per_epoch)

    def _drawn(self, mean_s: Floats, number: int, within: float) -> Floats:
        """Shape (runs, number): every run by a factor of its own, and each of its times by another."""
        return _drawn(self._random, mean_s, number, self._spread, within)

    def _steps(self, step_s: Floats, end_s: Floats) -> pd.DataFrame:
        step = np.tile(np.arange(step_s.shape[1]), len(step_s))
        return pd.DataFrame(
            {
                "run": np.repeat(self.runs["run"], step_s.shape[1]).to_numpy(),
                "rank": 0,
                "epoch": step // self.shape.steps_per_epoch,
                "step": step,
                "loss": 1.0,
                "start_ns": nanoseconds(end_s - step_s).ravel(),
                "duration_s": step_s.ravel(),
                "wait_s": 0.0,
                "warmup": False,
            }
        )

    def _epochs(self, parts_s: Floats) -> pd.DataFrame:
        epochs = parts_s.shape[1]
        return pd.DataFrame(
            {
                "run": np.repeat(self.runs["run"], epochs).to_numpy(),
                "epoch": np.tile(np.arange(epochs), len(parts_s)),
                "duration_s": parts_s.sum(axis=2).ravel(),
                "warmup_s": 0.0,
            }
        )

    def _checkpoints(self, stall_s: Floats, step_s: Floats, end_s: Floats) -> pd.DataFrame:
        every, written = self.shape.steps_per_epoch, self._writes
        own_s, runs = stall_s[written].ravel(), self.runs.loc[written, "run"]
        durable_s = _drawn(
            self._aside, self._durable_s, self.shape.epochs, self._spread, WITHIN_STALLS
        )
        epoch = np.tile(np.arange(self.shape.epochs), len(runs))
        began_s = end_s[:, every - 1 :: every]
        ended_s = self._ended_s(stall_s, end_s - step_s / 2, began_s)
        return pd.DataFrame(
            {
                "run": np.repeat(runs, self.shape.epochs).to_numpy(),
                "rank": 0,
                "step": (epoch + 1) * every,
                "epoch": epoch,
                "start_ns": nanoseconds(began_s[written]).ravel(),
                "stall_s": own_s,
                "save_s": own_s,
                "update_hold_s": 0.0,
                "save_hold_s": 0.0,
                "removal_hold_s": 0.0,
                "writes": True,
                "write_s": own_s,
                "sync_s": 0.0,
                "checksum_s": 0.0,
                "commit_s": 0.0,
                "durable_s": durable_s[written].ravel(),
                "ended_s": ended_s[written].ravel(),
                "place": epoch + 1,
                "steady": True,
                # As if every strategy had levels: the first checkpoint of a run lies at a nearer one alone.
                "levels": np.where(epoch == 0, "memory", "shared"),
                "bytes": 1,
                "to_host_bytes_per_s": np.nan,
            }
        )

    def _ended_s(self, stall_s: Floats, middle_s: Floats, began_s: Floats) -> Floats:
        """After its begin: a save in the background ends in the middle of a step, any other with its stall."""
        ended_s = stall_s.copy()
        behind = self._slower > 1
        last_s = middle_s[:, self.shape.steps_per_epoch + BEHIND_STEPS - 1 :: self.shape.steps_per_epoch]  # fmt: skip
        ended_s[behind, :-1] = (last_s - began_s[:, :-1])[behind]
        return ended_s

    def _memory(self) -> pd.DataFrame:
        """One sample an epoch: before its checkpoint, in a baseline after it."""
        epochs, number = self.shape.epochs, len(self.runs)
        place = np.arange(1, epochs + 1)
        growth = GROWTH_BYTES * self._writes * _around_one(self._aside, self._spread)
        peak = self._peak_bytes * _around_one(self._aside, self._spread)
        noise = WITHIN_BYTES * self._aside.standard_normal((2, number, epochs))
        return pd.DataFrame(
            {
                "run": np.repeat(self.runs["run"], epochs).to_numpy(),
                "rank": 0,
                "step": np.tile(place * self.shape.steps_per_epoch, number),
                "when": np.repeat(np.where(self._writes, "before", "epoch"), epochs),
                "at_ns": nanoseconds(np.tile(place.astype(float), number)),
                "bytes": (BASELINE_BYTES + np.outer(growth, place) + noise[0]).ravel(),
                "peak_bytes": (BASELINE_BYTES + peak[:, np.newaxis] + noise[1]).ravel(),
                "threads": 1,
                "processes": 0,
                "gpu_peak_bytes": pd.NA,
            }
        )


def _drawn(
    random: np.random.Generator, mean_s: Floats, number: int, spread: Floats, within: float
) -> Floats:
    of_run = _around_one(random, spread)
    of_each = _around_one(random, np.full((number, len(mean_s)), within))
    return (mean_s * of_run * of_each).T


def _around_one(random: np.random.Generator, spread: Floats) -> Floats:
    """Lognormal factors whose mean is one."""
    factors: Floats = np.exp(spread * random.standard_normal(spread.shape) - spread**2 / 2)
    return factors


def nanoseconds(seconds: Floats) -> NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)


def step_s(row: Row) -> float:
    """Mean of a step of this row of any table."""
    slower = TWO_RANKS if row["ranks"] == 2 else 1.0
    deterministic = DETERMINISTIC if row["deterministic"] else 1.0
    return STEP_S[row["framework"]] * slower * deterministic
