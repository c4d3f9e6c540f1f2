"""Invented tables of a study, shaped like measured ones: what the figures are tested with."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pandas as pd
from cost_tables import cost, of_strategy, overhead, size, size_key, stalls, timeline
from labelled import with_specs
from proof_tables import Restarts, consistency, curve, determinism_cost, divergence, proof, restore
from recovery_tables import goodput
from training_tables import Setup, events_of, machine, run_name, scaling, whole_curve

from ckptbench.analysis.collect.machine import MACHINE
from ckptbench.analysis.tables.registry import COLLECTED, DECIDED, DERIVED
from ckptbench.matrix.registry import FRAMEWORKS

FILLED = {**DERIVED, **{name: COLLECTED[name] for name in ("steps", "epochs", "evaluations")}}
RUNS = COLLECTED["runs"].table.rows([])
"""Of the runs nothing is known but what the derived tables say."""


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
    """By which the runs with failures went on, as tables name them. Each later one loses half as much, and a tenth more of its ranks."""
    shared_cores: bool = False
    """Whether all ranks compute with the same cores, which allow what the fewest ranks did."""

    def tables(self) -> dict[str, pd.DataFrame]:
        """Each call gives copies of its own, which a test may change."""
        return {name: frame.copy() for name, frame in _filled(self).items()}

    def _filled(self) -> dict[str, pd.DataFrame]:
        rows = {
            "overhead": [overhead(setup, self.repeats) for setup in self._setups()],
            "sizes": list({size_key(s): size(s) for s in self._setups()}.values()),
            "scaling": [
                scaling(setup, reference=min(self.ranks), shared_cores=self.shared_cores)
                for setup in self._baselines()
            ],
            "checkpoint_cost": [cost(setup, self.repeats) for setup in self._setups()],
            "stall": [
                row
                for setup in self._setups()
                for row in stalls(setup, self.repeats, first_checkpoints=self.first_checkpoints)
            ],
            "strategies": [of_strategy(setup, self.repeats) for setup in self._setups()],
            "timeline": [row for setup in self._setups() for row in timeline(setup)],
            "determinism_cost": [determinism_cost(s, self.repeats) for s in self._systems()],
            "goodput": [
                goodput(setup, self.repeats, self.recoveries.index(setup["recovery"]))
                for setup in self._struck()
            ],
            "provenance": [machine(on, self.repeats) for on in self.hardware],
            **self._of_restarts(),
        }
        curves = [row for setup in self._all() for row in whole_curve(setup, self.repeats)]
        curves += [row for run in self._compared() for row in curve(*run)]
        rows |= events_of(curves)
        tables = {name: entry.table.rows(rows.get(name, [])) for name, entry in FILLED.items()}
        return tables | _undecided() | {"machine": _undisturbed(tables["epochs"]), "runs": RUNS}

    def _of_restarts(self) -> dict[str, list[Setup]]:
        return {
            "resume_proof": [
                proof(setup, restarts, run, run_name(_uninterrupted(setup), repeat), repeat)
                for setup, restarts, run, repeat in self._compared()
            ],
            "consistency": [
                consistency(setup, run_name(setup, repeat), repeat)
                for setup in self._setups()
                for repeat in range(self.repeats if self.proven else 0)
            ],
            "divergence": [row for run in self._compared() for row in divergence(*run)],
            "restore": [row for run in self._compared() for row in restore(*run)],
        }

    def _compared(self) -> Iterator[tuple[Setup, Restarts, str, int]]:
        for whole in self._setups():
            for setup in self.restarts.setups(whole):
                for repeat in range(self.repeats):
                    yield setup, self.restarts, run_name(setup, repeat), repeat

    def _systems(self) -> Iterator[Setup]:
        return (s for s in self._baselines() if s["deterministic"] == self.deterministic[0])

    def _baselines(self) -> Iterator[Setup]:
        for framework in self.frameworks:
            for model in self.models:
                for ranks in self.ranks:
                    for on in self.hardware:
                        for deterministic in self.deterministic:
                            yield with_specs(
                                {
                                    "framework": framework,
                                    "model": model,
                                    "dataset": "digits",
                                    "ranks": ranks,
                                    "batch_size": self.batch_size,
                                    "epochs": self.epochs,
                                    "optimizer": "sgd",
                                    "precision": "fp32",
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
                            )

    def _setups(self) -> Iterator[Setup]:
        for setup in self._baselines():
            # One that is not registered writes what PyTorch does.
            formats = FRAMEWORKS.get(setup["framework"], FRAMEWORKS["pytorch"]).formats
            for strategy in self.strategies:
                written_in = formats if strategy == "native" else ("safetensors",)
                for written in written_in[: self.formats_each]:
                    for interval in self.intervals:
                        own = {"strategy": strategy, "format": written, "interval": interval}
                        yield with_specs(setup | own)

    def _struck(self) -> Iterator[Setup]:
        for setup in self._setups():
            for faults in self.struck:
                for recovery in self.recoveries:
                    yield with_specs(setup | {"history": faults, "recovery": recovery})

    def _all(self) -> Iterator[Setup]:
        yield from self._baselines()
        yield from self._setups()


@functools.cache
def _filled(study: Study) -> dict[str, pd.DataFrame]:
    return study._filled()


def _uninterrupted(setup: Setup) -> Setup:
    undisturbed = {"history": "whole", "recovery": "restart", "omit": "nothing", "cache": "warm"}
    return with_specs(setup | undisturbed)


def together(*studies: Study) -> dict[str, pd.DataFrame]:
    """The tables of one study that has the cells of all these, on one machine."""
    tables = [study.tables() for study in studies]
    provenance = {"provenance": tables[0]["provenance"]}
    return {
        name: entry.table.frame(pd.concat([own[name] for own in tables], ignore_index=True))
        for name, entry in FILLED.items()
    } | {**_undecided(), **provenance, "machine": pd.concat([own["machine"] for own in tables]), "runs": RUNS}  # fmt: skip


def empty_tables() -> dict[str, pd.DataFrame]:
    """A study of which nothing ran."""
    return (
        {name: entry.table.rows([]) for name, entry in FILLED.items()}
        | _undecided()
        | {"machine": MACHINE.rows([]), "runs": RUNS}
    )


def _undisturbed(epochs: pd.DataFrame) -> pd.DataFrame:
    """The table `machine` of these runs."""
    return MACHINE.rows(
        {"run": run, "host": "node1", "disturbed": False, "by": "", "others": 0.001, "stolen": 0.0}
        for run in epochs["run"].unique()
    )


def _undecided() -> dict[str, pd.DataFrame]:
    """Whoever wants tables of the decision makes them from costs: that takes a second, and few tests read them."""
    return {name: entry.table.rows([]) for name, entry in DECIDED.items()}
