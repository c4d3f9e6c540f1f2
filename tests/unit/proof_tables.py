"""Invented rows of the tables on restarts, for `figure_tables`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from labelled import with_specs
from training_tables import Setup

from ckptbench.matrix.registry import FAULTS, FRAMEWORKS, KILLED, OMISSIONS

GROUPS = {
    "counters": 3,
    "momentum": 60,
    "position": 1,
    "random": 2,
    "statistics": 40,
    "weights": 60,
}
PHASES_S = {
    "launch_s": 0.2,
    "meet_s": 0.05,
    "import_s": 2.0,
    "join_s": 0.3,
    "data_s": 0.02,
    "build_s": 0.8,
    "load_s": 0.5,
    "first_step_s": 0.9,
}
CHECKPOINT_BYTES = 188_000_000


def _omissions(framework: str) -> tuple[str, ...]:
    """The parts that matter to it; to one that is not registered, all of them."""
    entry = FRAMEWORKS.get(framework)
    return tuple(OMISSIONS)[1:] if entry is None else entry.omissions


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """What the runs that were killed, and those of the same seed again, came to."""

    histories: tuple[str, ...] = ("rerun", "killed_between", "killed_inside", "killed_thrice")
    caches: tuple[str, ...] = ("warm", "cold")
    parting: frozenset[tuple[str, bool]] = frozenset({("tensorflow", False)})
    """Framework and deterministic mode of the runs that part from their reference, after the second epoch."""
    controls: bool = True
    cold_shown: tuple[tuple[str, bool | None], ...] = ()
    """By framework, where the cold loads of one were not shown to be cold."""

    def setups(self, whole: Setup) -> Iterator[Setup]:
        """Those that are held against `whole`, a setup with checkpoints."""
        for history in self.histories:
            for cache in self.caches if history in KILLED else ("warm",):
                yield with_specs(whole | {"history": history, "cache": cache})
        if self.controls:
            for omit in _omissions(whole["framework"]):
                yield with_specs(whole | {"history": "killed_between", "omit": omit})

    def parts(self, setup: Setup) -> bool:
        is_control = setup["omit"] != "nothing"
        return is_control or (setup["framework"], setup["deterministic"]) in self.parting


NO_RESTARTS = Restarts(histories=(), controls=False)
"""Of a large study whose restarts no test looks at: they have most of its rows."""


def kills(setup: Setup) -> int:
    return FAULTS[setup["history"]].kills if setup["history"] in KILLED else 0


def proof(setup: Setup, restarts: Restarts, run: str, reference: str, repeat: int) -> Setup:
    parts = restarts.parts(setup)
    is_control = setup["omit"] != "nothing"
    return setup | {
        "run": run,
        "reference": reference,
        "repeat": repeat,
        "attempts": kills(setup) + 1,
        "digests": 166 * setup["epochs"],
        "different_digests": 400 if parts else 0,
        "bit_equal": not parts,
        "first_epoch": 1 if parts else None,
        "first_tensors": "model/fc.kernel" if parts else "",
        "groups": ("statistics" if setup["omit"] == "statistics" else "weights, momentum") * parts,
        "tensors": 166,
        "different_tensors": 120 if parts else 0,
        "max_ulp": 2_012_345_678 if parts else 0,
        "relative_l2": 0.0312 if parts else 0.0,
        "loss_difference": 0.0213 if parts else 0.0,
        "accuracy_difference": 0.0156 if parts else 0.0,
        "missing": setup["omit"] if is_control and parts else "",
        "caught": parts if is_control else None,
    }


def consistency(setup: Setup, run: str, repeat: int) -> Setup:
    return setup | {
        "run": run,
        "repeat": repeat,
        "versions_taken": setup["epochs"],
        "versions_compared": 2,
        "whole": 2,
        "torn": 0,
        "torn_names": "",
        "torn_groups": "",
        "consistent": True,
    }


def divergence(setup: Setup, restarts: Restarts, run: str, repeat: int) -> Iterator[Setup]:
    for epoch in range(setup["epochs"]):
        for group, tensors in GROUPS.items():
            differ = restarts.parts(setup) and epoch >= 1 and group in ("weights", "momentum")
            different = min(tensors, 20 * epoch) if differ else 0
            yield setup | {
                "run": run,
                "repeat": repeat,
                "group": group,
                "epoch": epoch,
                "tensors": tensors * setup["ranks"],
                "different": different * setup["ranks"],
                "share": different / tensors,
            }


def restore(setup: Setup, restarts: Restarts, run: str, repeat: int) -> Iterator[Setup]:
    is_cold = setup["cache"] == "cold"
    slower = {"tensorflow": 3.0, "horovod_tensorflow": 4.0}.get(setup["framework"], 1.0)
    for kill in range(kills(setup)):
        times = {name: seconds * slower * (1 + 0.02 * repeat) for name, seconds in PHASES_S.items()}
        times["load_s"] *= 3 if is_cold else 1
        shown = dict(restarts.cold_shown).get(setup["framework"], True) if is_cold else True
        read = CHECKPOINT_BYTES if is_cold and shown else 0
        epoch = setup["epochs"] * (kill + 1 + 0.2 * repeat) / (kills(setup) + 1.5)
        yield setup | {
            **times,
            "run": run,
            "repeat": repeat,
            "attempt": kill + 2,
            "step": int(20 * epoch),
            "epoch": epoch,
            "after": "synced" if setup["history"] == "killed_inside" else "between",
            "evict_s": 0.1 * is_cold,
            "total_s": sum(times.values()),
            "read_bytes": None if shown is None else read,
            "bytes": CHECKPOINT_BYTES,
            "cold_shown": shown,
        }


def curve(setup: Setup, restarts: Restarts, run: str, repeat: int) -> Iterator[Setup]:
    """Loss and accuracy by epoch: as the uninterrupted run's until the two part."""
    speed = {"chainer": 0.35, "pytorch": 0.42, "tensorflow": 0.38}.get(setup["framework"], 0.4)
    noise = np.random.default_rng(len(setup["history"]) + repeat)
    for epoch in range(setup["epochs"]):
        loss = 2.3 * np.exp(-speed * (epoch + 1)) * (1 + 0.06 * repeat)
        if restarts.parts(setup) and epoch >= 1:
            loss += noise.normal(0, 0.05)
        yield {
            "run": run,
            "epoch": epoch,
            "training_loss": loss,
            "test_loss": 1.1 * loss,
            "test_accuracy": 1 - 0.4 * loss,
        }


def determinism_cost(setup: Setup, repeats: int) -> Setup:
    cost = {"chainer": 0.02, "pytorch": 0.11, "tensorflow": 0.31}.get(setup["framework"], 0.07)
    width = 0.03 if repeats > 1 else float("nan")
    return setup | {
        "repeats": repeats,
        "time_s": 10 * (1 + cost),
        "default_s": 10.0,
        "cost": cost,
        "cost_lo": cost - width,
        "cost_hi": cost + width,
        "note": "",
    }
