"""Invented rows of the tables on what checkpoints cost and weigh, for `figure_tables`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from training_tables import Setup, run_name

from ckptbench.analysis.tables.columns import SETUP

WRITE_S = {"npz_compressed": 6.5, "hdf5": 0.6, "npz": 0.46, "keras": 0.7}
MODEL_BYTES = {
    "gpt_baby": 43_300_000,
    "small_cnn": 75_000,
    "resnet50": 94_330_000,
    "vgg16": 537_200_000,
}
BLOCKING = {"native", "sharded", "dcp"}
SHORTER = {"sharded": 0.6, "dcp": 1.3, "async": 0.05, "dcp_async": 0.1, "deepfreeze": 0.004}
"""Stalls of strategies, as shares of that of `native`; those of others are as long as it."""


def _random(setup: Setup) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr([setup[name] for name in SETUP]).encode()))


def _strategy(setup: Setup) -> str:
    return str(setup["strategy_name"])


def _stall_s(setup: Setup) -> float:
    return SHORTER.get(_strategy(setup), 1.0) * _save_s(setup)


def _save_s(setup: Setup) -> float:
    """How long the save lasts, whether training waits for it or not."""
    scale = MODEL_BYTES[setup["model"]] / MODEL_BYTES["resnet50"]
    speed = 3 if setup["measured_on"] == "gpu" else 1
    return scale * WRITE_S.get(setup["format"], 0.5) * (1 + 0.05 * setup["ranks"]) / speed


def overhead(setup: Setup, repeats: int) -> Setup:
    random = _random(setup)
    inside = _stall_s(setup) / 10 * random.uniform(0.9, 1.1)
    outside = inside + random.normal(0, 0.015)
    width = random.uniform(0.005, 0.03)
    return setup | {
        "repeats": repeats,
        "steps_per_epoch": 10,
        "paired_repeats": repeats,
        "checkpoints": 12,
        "time_s": 10 * (1 + outside),
        "baseline_s": 10.0,
        "paired": outside,
        "paired_lo": outside - width,
        "paired_hi": outside + width,
        "in_run": inside,
        "in_run_lo": inside - 0.005,
        "in_run_hi": inside + 0.005,
        "overhead": outside,
        "overhead_lo": outside - width,
        "overhead_hi": outside + width,
        "overhead_from": "paired",
        "disturbed": False,
        "levels": "",
        "in_run_steady": 0.8 * inside,
        "in_run_steady_lo": 0.8 * inside - 0.005,
        "in_run_steady_hi": 0.8 * inside + 0.005,
        "agree": abs(outside - inside) <= width + 0.005,
        "note": "",
    }


def size_key(setup: Setup) -> tuple[Any, ...]:
    return tuple(setup[n] for n in ("framework", "model", "dataset", "ranks", "strategy", "format"))


def size(setup: Setup) -> Setup:
    model = MODEL_BYTES[setup["model"]]
    rest = 5_000 * setup["ranks"]
    factor = 0.81 if setup["format"] == "npz_compressed" else 1.001
    measured = int((2 * model + rest) * factor)
    return setup | {
        "versions": 12,
        "files": 2.0 + setup["ranks"],
        "bytes": measured,
        "bytes_min": int(measured * 0.98) if factor < 1 else measured,
        "bytes_max": measured,
        "constant": factor > 1,
        "main_bytes": measured - rest,
        "rank_bytes": rest,
        "state_model_bytes": model,
        "state_optimizer_bytes": model,
        "state_second_moments_bytes": 0,
        "state_rest_bytes": rest,
        "ratio": factor,
    }


def cost(setup: Setup, repeats: int) -> Setup:
    stall = _stall_s(setup)
    return setup | {
        "repeats": repeats,
        "checkpoints": 12,
        "stall_s": stall,
        "stall_s_lo": 0.9 * stall,
        "stall_s_hi": 1.2 * stall,
        "steady": True,
        "durable_s": 1.02 * stall if _strategy(setup) in BLOCKING else 1.4 * _save_s(setup),
        "paired": 0.1,
        "in_run": 0.1,
    }


def stalls(setup: Setup, repeats: int, *, first_checkpoints: int) -> Iterator[Setup]:
    """`first_checkpoints`: as in `Study`."""
    random = _random(setup)
    for repeat in range(repeats):
        for epoch in range(setup["epochs"]):
            noise = random.lognormal(0, 0.15)
            write = _save_s(setup) * noise
            blocking = _strategy(setup) in BLOCKING
            behind = {
                "write_s": write,
                "sync_s": 0.3 * write,
                "checksum_s": 0.1 * write,
                "commit_s": 0.02,
            }
            waits = {
                "capture_s": 0.0 if blocking else 0.8 * _stall_s(setup) * noise,
                "update_hold_s": 0.0 if blocking else 0.2 * _stall_s(setup) * noise,
                "save_hold_s": 0.0,
                "removal_hold_s": 0.01 * (epoch > 0),
                "wait_s": 0.05 * (blocking and setup["ranks"] > 1),
            }
            yield (
                setup
                | behind
                | waits
                | {
                    "run": run_name(setup, repeat),
                    "repeat": repeat,
                    "epoch": epoch,
                    "step": 20 * (epoch + 1),
                    "warmup": epoch == 0,
                    "place": epoch + 1,
                    "levels": "shared",
                    "steady": epoch + 1 > first_checkpoints,
                    "blocking": blocking,
                    "stall_s": sum(waits.values()) + blocking * sum(behind.values()),
                    "durable_s": 1.4 * write + 0.02,
                    "bytes": 188_000_000,
                }
            )


def of_strategy(setup: Setup, repeats: int) -> Setup:
    stall, save = _stall_s(setup), _save_s(setup)
    blocking = _strategy(setup) in BLOCKING
    model = MODEL_BYTES[setup["model"]]
    values = {
        "stall": ("_s", stall),
        "slowdown": ("_s", 0.02 if blocking else 0.3 * save),
        "durable": ("_s", 1.4 * save),
        "overhead": ("", stall / 10),
        "memory": ("_bytes", 2e6 if blocking else 2.0 * model),
    }
    ends = {"": 1.0, "_lo": 0.8, "_hi": 1.3}
    measures = {
        f"{name}{unit}{end}": factor * value
        for name, (unit, value) in values.items()
        for end, factor in ends.items()
    }
    return (
        setup
        | measures
        | {
            "runs": repeats,
            "blocking": blocking,
            "shared_every": 1,
            "checkpoints": 12,
            "waited": 0.0,
            "continued": 0,
            "durable_checkpoints": 12,
            "bytes": 2.0 * model,
            "files": 2.0,
            "load_s": 0.3,
            "consistent": True,
        }
    )


def timeline(setup: Setup) -> Iterator[Setup]:
    """One checkpoint after ten steps: some before it, it, and steps until it is durable."""
    stall, save, step = _stall_s(setup), _save_s(setup), 0.2
    blocking = _strategy(setup) in BLOCKING
    blocked = 1.4 * save + 0.02 if blocking else 0.8 * stall
    durable = 1.4 * save + 0.02
    end = max(blocked, durable) + 2 * step
    for rank in range(setup["ranks"]):
        writes = rank == 0
        spans = [
            ("step", "", "", -step, 0.0),
            ("save", "", "", 0.0, blocked),
            ("capture", "", "", 0.0, save if blocking else blocked),
            ("write", "", "shared", 0.0, save),
            *([("hold", "update", "", blocked + 0.1, blocked + 0.12)] if not blocking else []),
        ]
        if writes:
            ends = [save, 1.3 * save, 1.4 * save, durable]
            kinds = ("sync", "checksum", "commit")
            spans += [
                (kind, "", "shared", *ends[place : place + 2]) for place, kind in enumerate(kinds)
            ]
            spans.append(("removal", "", "", durable, durable + 0.05))
        starts = np.arange(blocked, end, step)
        spans += [("step", "", "", start, min(start + step, end)) for start in starts]
        for number, (kind, why, level, start_s, end_s) in enumerate(spans):
            yield setup | {
                "run": run_name(setup, 0),
                "repeat": 0,
                "step": 10,
                "rank": rank,
                "kind": kind,
                "why": why,
                "level": level,
                "of_step": 10 + number if kind == "step" and number else 10,
                "start_s": start_s,
                "end_s": end_s,
            }
