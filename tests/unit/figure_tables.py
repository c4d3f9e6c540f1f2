"""Invented tables of a study, shaped like measured ones: what the figures are tested with."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from proof_tables import Restarts, consistency, curve, determinism_cost, divergence, proof, restore

from ckptbench.analysis.tables.columns import LOST_PARTS, SETUP
from ckptbench.analysis.tables.registry import DERIVED
from ckptbench.matrix.catalogue import FRAMEWORKS

WRITE_S = {"npz_compressed": 6.5, "hdf5": 0.6, "npz": 0.46, "keras": 0.7}
MODEL_BYTES = {"small_cnn": 75_000, "resnet50": 94_330_000, "vgg16": 537_200_000}


@dataclass(frozen=True, kw_only=True)
class Study:
    """The matrix that the tables pretend to come from."""

    frameworks: tuple[str, ...] = ("chainer", "pytorch", "tensorflow")
    models: tuple[str, ...] = ("resnet50",)
    ranks: tuple[int, ...] = (1, 2)
    formats_each: int = 1
    strategies: tuple[str, ...] = ("native",)
    """As tables name them, so with their options."""
    intervals: tuple[str, ...] = ("e1",)
    hardware: tuple[str, ...] = ("cpu",)
    deterministic: tuple[bool, ...] = (False,)
    repeats: int = 3
    batch_size: int = 32
    epochs: int = 5
    restarts: Restarts = field(default_factory=Restarts)
    first_checkpoints: int = 3
    """How many checkpoints of a run come before the steady state."""
    proven: bool = False
    """Whether the uninterrupted runs compared their versions with the states of their steps."""
    struck: tuple[str, ...] = ()
    """The traces of failures that other runs of each setup met, as tables name them."""
    recoveries: tuple[str, ...] = ("restart",)
    """By which the struck runs went on, as tables name them. Each later one loses half as much, and a tenth more of its ranks."""
    shared_cores: bool = False
    """Whether all ranks compute with the same cores, which allow what the fewest ranks did."""

    def tables(self) -> dict[str, pd.DataFrame]:
        rows = {
            "overhead": [_overhead(setup, self.repeats) for setup in self._setups()],
            "sizes": list({_size_key(s): _size(s) for s in self._setups()}.values()),
            "scaling": [_rate(setup, self) for setup in self._baselines()],
            "checkpoint_cost": [_cost(setup, self.repeats) for setup in self._setups()],
            "stall": [row for setup in self._setups() for row in _stalls(setup, self)],
            "strategies": [_of_strategy(setup, self.repeats) for setup in self._setups()],
            "timeline": [row for setup in self._setups() for row in _timeline(setup)],
            "training": [row for setup in self._all() for row in _curve(setup, self)],
            "determinism_cost": [determinism_cost(s, self.repeats) for s in self._systems()],
            "goodput": [
                _goodput(setup | {"history": faults, "recovery": recovery}, self.repeats, place)
                for setup in self._setups()
                for faults in self.struck
                for place, recovery in enumerate(self.recoveries)
            ],
            "outcome": [
                _outcome(setup | {"history": faults, "recovery": recovery}, self.repeats)
                for setup in self._setups()
                for faults in self.struck
                for recovery in self.recoveries
            ],
            "aftermath": self._aftermath(),
            "provenance": [_machine(on, self.repeats) for on in self.hardware],
            **self._of_restarts(),
        }
        rows["training"] += [row for run in self._compared() for row in curve(*run)]
        return {name: entry.table.rows(rows.get(name, [])) for name, entry in DERIVED.items()}

    def _aftermath(self) -> list[dict[str, Any]]:
        """Of each setup and trace of failures one run, which does its steps 5 to 9 again 20 s later, and its undisturbed run."""
        done = [(step, float(step)) for step in range(1, 11)]
        again = [(step, step + 25.0) for step in range(6, 21)]
        whole = [(step, float(step)) for step in range(1, 21)]
        rows = [
            *({"what": "undisturbed", "second": second, "step": step, "loss": 2 - step / 20} for step, second in whole),
            *({"what": "struck", "second": second, "step": step, "loss": 2 - step / 20} for step, second in [*done, *again]),
            {"what": "failure", "second": 10.5},
        ]  # fmt: skip
        return [
            {
                **setup, "history": faults, "recovery": recovery, "run": f"{_run(setup, 0)}-{faults}-{recovery}",
                "repeat": 0, "steps_per_epoch": 20, **row,
            }
            for setup in self._setups()
            for faults in self.struck
            for recovery in self.recoveries
            for row in rows
        ]  # fmt: skip

    def _of_restarts(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "resume_proof": [
                proof(setup, restarts, run, _run(_uninterrupted(setup), repeat), repeat)
                for setup, restarts, run, repeat in self._compared()
            ],
            "consistency": [
                consistency(setup, _run(setup, repeat), repeat)
                for setup in self._setups()
                for repeat in range(self.repeats if self.proven else 0)
            ],
            "divergence": [row for run in self._compared() for row in divergence(*run)],
            "restore": [row for run in self._compared() for row in restore(*run)],
        }

    def _compared(self) -> Iterator[tuple[dict[str, Any], Restarts, str, int]]:
        for whole in self._setups():
            for setup in self.restarts.setups(whole):
                for repeat in range(self.repeats):
                    yield setup, self.restarts, _run(setup, repeat), repeat

    def _systems(self) -> Iterator[dict[str, Any]]:
        return (s for s in self._baselines() if s["deterministic"] == self.deterministic[0])

    def _baselines(self) -> Iterator[dict[str, Any]]:
        for framework in self.frameworks:
            for model in self.models:
                for ranks in self.ranks:
                    for on in self.hardware:
                        for deterministic in self.deterministic:
                            yield {
                                "framework": framework,
                                "model": model,
                                "dataset": "digits",
                                "ranks": ranks,
                                "batch_size": self.batch_size,
                                "epochs": self.epochs,
                                "deterministic": deterministic,
                                "accelerator": "cuda" if on == "gpu" else "cpu",
                                "measured_on": on,
                                "strategy": "native",
                                "format": "none",
                                "interval": "never",
                                "history": "whole",
                                "recovery": "restart",
                                "omit": "nothing",
                                "cache": "warm",
                            }

    def _setups(self) -> Iterator[dict[str, Any]]:
        for setup in self._baselines():
            # One that is not registered writes what PyTorch does.
            formats = FRAMEWORKS.get(setup["framework"], FRAMEWORKS["pytorch"]).formats
            for strategy in self.strategies:
                own = formats if strategy == "native" else ("safetensors",)
                for written in own[: self.formats_each]:
                    for interval in self.intervals:
                        yield setup | {
                            "strategy": strategy,
                            "format": written,
                            "interval": interval,
                        }

    def _all(self) -> Iterator[dict[str, Any]]:
        yield from self._baselines()
        yield from self._setups()


def _uninterrupted(setup: dict[str, Any]) -> dict[str, Any]:
    return setup | {
        "history": "whole",
        "recovery": "restart",
        "omit": "nothing",
        "cache": "warm",
    }


def together(*studies: Study) -> dict[str, pd.DataFrame]:
    """The tables of one study that has the cells of all these, on one machine."""
    tables = [study.tables() for study in studies]
    machine = {"provenance": tables[0]["provenance"]}
    return {
        name: entry.table.frame(pd.concat([own[name] for own in tables], ignore_index=True))
        for name, entry in DERIVED.items()
    } | machine


def empty_tables() -> dict[str, pd.DataFrame]:
    """A study of which nothing ran."""
    return {name: entry.table.rows([]) for name, entry in DERIVED.items()}


def _random(setup: dict[str, Any]) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr([setup[name] for name in SETUP]).encode()))


BLOCKING = {"native", "sharded", "dcp"}
SHORTER = {"sharded": 0.6, "dcp": 1.3, "async": 0.05, "dcp_async": 0.1, "deepfreeze": 0.004}
"""Stalls of strategies, as shares of that of `native`; those of others are as long as it."""


def _strategy(setup: dict[str, Any]) -> str:
    """Without its options."""
    known = [name for name in SHORTER if f"{setup['strategy']}_".startswith(f"{name}_")]
    return max(known, key=len, default=setup["strategy"])


def _stall_s(setup: dict[str, Any]) -> float:
    return SHORTER.get(_strategy(setup), 1.0) * _save_s(setup)


def _save_s(setup: dict[str, Any]) -> float:
    """How long the save lasts, whether training waits for it or not."""
    scale = MODEL_BYTES[setup["model"]] / MODEL_BYTES["resnet50"]
    speed = 3 if setup["measured_on"] == "gpu" else 1
    return scale * WRITE_S.get(setup["format"], 0.5) * (1 + 0.05 * setup["ranks"]) / speed


def _overhead(setup: dict[str, Any], repeats: int) -> dict[str, Any]:
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
        "levels": "",
        "steady_checkpoints": 6,
        "in_run_steady": 0.8 * inside,
        "in_run_steady_lo": 0.8 * inside - 0.005,
        "in_run_steady_hi": 0.8 * inside + 0.005,
        "stall_s": 10 * inside,
        "slowdown_s": 0.0,
        "overhead_without_fsync": 0.7 * inside,
        "agree": abs(outside - inside) <= width + 0.005,
        "note": "",
    }


def _size_key(setup: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(setup[n] for n in ("framework", "model", "dataset", "ranks", "strategy", "format"))


def _size(setup: dict[str, Any]) -> dict[str, Any]:
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
        "state_rest_bytes": rest,
        "ratio": factor,
        "main_ratio": factor,
    }


def _rate(setup: dict[str, Any], study: Study) -> dict[str, Any]:
    reference = min(study.ranks)
    base = {"chainer": 60.0, "pytorch": 160.0, "tensorflow": 110.0}.get(setup["framework"], 140.0)
    base *= 40 if setup["measured_on"] == "gpu" else 1
    efficiency = (setup["ranks"] / reference) ** -0.12
    if study.shared_cores:
        efficiency *= reference / setup["ranks"]
    rate = base * setup["ranks"] * efficiency
    allowed = base * (reference if study.shared_cores else setup["ranks"])
    return setup | {
        "repeats": 3,
        "steps": 300,
        "images_per_s": rate,
        "images_per_s_lo": 0.96 * rate,
        "images_per_s_hi": 1.03 * rate,
        "reference_ranks": reference,
        "allowed_images_per_s": allowed if setup["measured_on"] == "cpu" else float("nan"),
        "speedup": setup["ranks"] / reference * efficiency,
        "efficiency": efficiency,
        "efficiency_lo": 0.97 * efficiency,
        "efficiency_hi": 1.03 * efficiency,
        "measured": True,
    }


def _cost(setup: dict[str, Any], repeats: int) -> dict[str, Any]:
    stall = _stall_s(setup)
    return setup | {
        "repeats": repeats,
        "checkpoints": 12,
        "stall_s": stall,
        "stall_s_lo": 0.9 * stall,
        "stall_s_hi": 1.2 * stall,
        "first_stall_s": 1.5 * stall,
        "steady": True,
        "durable_s": 1.02 * stall if _strategy(setup) in BLOCKING else 1.4 * _save_s(setup),
        "paired": 0.1,
        "in_run": 0.1,
        "measured": True,
    }


def _run(setup: dict[str, Any], repeat: int) -> str:
    return "-".join([*map(str, (setup[name] for name in SETUP)), f"rep{repeat}"])


def _stalls(setup: dict[str, Any], study: Study) -> Iterator[dict[str, Any]]:
    random = _random(setup)
    for repeat in range(study.repeats):
        for epoch in range(study.epochs):
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
                    "run": _run(setup, repeat),
                    "repeat": repeat,
                    "epoch": epoch,
                    "step": 20 * (epoch + 1),
                    "warmup": epoch == 0,
                    "place": epoch + 1,
                    "levels": "shared",
                    "steady": epoch + 1 > study.first_checkpoints,
                    "blocking": blocking,
                    "stall_s": sum(waits.values()) + blocking * sum(behind.values()),
                    "durable_s": 1.4 * write + 0.02,
                    "retention_s": 0.01,
                    "bytes": 188_000_000,
                }
            )


def _of_strategy(setup: dict[str, Any], repeats: int) -> dict[str, Any]:
    stall, save = _stall_s(setup), _save_s(setup)
    blocking = _strategy(setup) in BLOCKING
    model = MODEL_BYTES[setup["model"]]
    values = {
        "stall": ("_s", stall),
        "slowdown": ("_s", 0.02 if blocking else 0.3 * save),
        "durable": ("_s", 1.4 * save),
        "overhead": ("", stall / 10),
        "memory": ("_bytes", 2e6 if blocking else 2.0 * model),
        "growth": ("_bytes", 1e3),
    }
    ends = {"": 1.0, "_low": 0.8, "_high": 1.3}
    measures = {
        f"{name}{end}{unit}": factor * value
        for name, (unit, value) in values.items()
        for end, factor in ends.items()
    }
    return (
        setup
        | measures
        | {
            "runs": repeats,
            "checkpoints": 12,
            "continued": 0,
            "durable_checkpoints": 12,
            "threads_left": 0,
            "processes_left": 0,
            "bytes": 2.0 * model,
            "files": 2.0,
            "load_s": 0.3,
            "consistent": True,
        }
    )


def _timeline(setup: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
                "run": _run(setup, 0),
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


def _curve(setup: dict[str, Any], study: Study) -> Iterator[dict[str, Any]]:
    speed = {"chainer": 0.35, "pytorch": 0.42, "tensorflow": 0.38}.get(setup["framework"], 0.4)
    for repeat in range(study.repeats):
        for epoch in range(study.epochs):
            loss = 2.3 * np.exp(-speed * (epoch + 1)) * (1 + 0.06 * repeat)
            yield setup | {
                "run": _run(setup, repeat),
                "repeat": repeat,
                "attempts": 1,
                "epoch": epoch,
                "training_loss": loss,
                "test_loss": 1.1 * loss,
                "test_accuracy": 1 - 0.4 * loss,
            }


def _machine(on: str, repeats: int) -> dict[str, Any]:
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


def _goodput(setup: dict[str, Any], repeats: int, place: int) -> dict[str, Any]:
    """Failures as often as the mean of their trace says, else two a run, each with every part.

    The first part takes 0.1 s, each other one as much longer as it comes later; of each later recovery half as much.
    """
    failures = (
        120 / float(mean[1]) if (mean := re.search(r"mean_s_(\d+)$", setup["history"])) else 2.0
    )
    parts = {
        name: failures * 0.1 * number / 2**place for number, name in enumerate(LOST_PARTS, start=1)
    }
    lost_s = sum(parts.values())
    used = 1 - 0.1 * place
    useful = {"": 100.0, "_lo": 90.0, "_hi": 110.0 if repeats > 1 else np.nan}
    if repeats == 1:
        useful["_lo"] = np.nan
    return {
        **setup,
        "repeats": repeats,
        "paired_repeats": repeats,
        "failures": failures,
        "failures_per_hour": failures * 3600 / (100 + lost_s),
        "wall_s": 100 + lost_s,
        "useful_s": 100.0,
        "ranks_used": used * setup["ranks"],
        **{f"goodput{end}": value / (100 + lost_s) for end, value in useful.items()},
        **{
            f"goodput_of_ranks{end}": used * value / (100 + lost_s) for end, value in useful.items()
        },
        "loss_s": lost_s / 0.98,
        "parts_s": lost_s,
        "explained": 0.98,
        **parts,
    }


def _outcome(setup: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Kept: all bits are those of the undisturbed runs."""
    quantities = ("training_loss", "test_loss", "test_accuracy")
    ends = {f"{name}_difference{end}": 0.0 for name in quantities for end in ("", "_lo", "_hi")}
    return {
        **setup,
        "repeats": repeats,
        "paired_repeats": repeats,
        "compared_repeats": repeats,
        "bit_equal_repeats": repeats,
        "kept": True,
        **ends,
        "planned_samples": 1000.0,
        "seen_once": 1000.0,
        "seen_twice": 0.0,
        "never_seen": 0.0,
        "undone_samples": 100.0,
    }
