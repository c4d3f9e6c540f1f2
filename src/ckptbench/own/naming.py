"""What the runs of an own training are called in tables: placeholders become a strategy and an interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import NOTHING, RESTART, WHOLE
from ckptbench.own.seen import SeenRun

SEVERAL = "own training"
"""The title of a study whose runs start different scripts."""
Values = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """The names that all runs of a study have in its tables."""

    title: str
    """The script, in the place of a framework."""
    strategies: Mapping[str, str]
    """By id of a cell without its repeat: all values but the interval, `engine=dcp, ranks=2`; with none left, what saves."""
    intervals: Mapping[str, int]
    """Steps between two saves, as measured over all repeats; 0 where nothing was saved."""

    @classmethod
    def of(cls, runs: Sequence[SeenRun]) -> Named:
        scripts = {run.script for run in runs if run.script}
        intervals = _intervals(runs)
        aside = interval_names(runs, intervals)
        varied = _varied([dict(run.cell.values) for run in runs if not run.cell.is_baseline])
        shown = [name for name in varied if name not in aside]
        strategies = {
            run.cell.setup: _strategy(run, shown) or _engines(runs) or SEVERAL for run in runs
        }
        return cls(
            title=scripts.pop() if len(scripts) == 1 else SEVERAL,
            strategies=strategies,
            intervals=intervals,
        )

    def setup(self, run: SeenRun) -> dict[str, Any]:
        """The columns of SETUP. What nobody knows of an own training is 0 or empty."""
        strategy = self.strategies[run.cell.setup]
        measured_on = run.done.content["measured_on"]
        steps = 0 if run.cell.is_baseline else self.intervals[run.cell.setup]
        return {
            "framework": self.title,
            "model": "",
            "dataset": "",
            "ranks": max(run.measures.ranks, 1),
            "batch_size": 0,
            "epochs": 0,
            "optimizer": "",
            "precision": "",
            "deterministic": False,
            "accelerator": "cuda" if measured_on == "gpu" else "cpu",
            "measured_on": measured_on,
            **PluginSpec(strategy).columns("strategy"),
            "format": "" if steps else "none",
            "interval": str(Interval("steps", steps) if steps else NEVER),
            **PluginSpec(WHOLE).columns("history"),
            **RESTART.columns("recovery"),
            "omit": NOTHING,
            "cache": "warm",
        }


def interval_names(runs: Sequence[SeenRun], intervals: Mapping[str, int]) -> set[str]:
    """The placeholders that say how often to save: those that baselines replace and with which, all else equal, the measured interval changes. One that
    is replaced alone is such a one, too, unless two of its values were measured at the same interval."""
    cells = [run.cell for run in runs if not run.cell.is_baseline]
    kept = {name for run in runs if run.cell.is_baseline for name in run.cell.values}
    replaced = {name for cell in cells for name in cell.values} - kept
    seen = {
        tuple(cell.values.items()): intervals[cell.setup] for cell in cells if intervals[cell.setup]
    }
    beside = {name: _beside(name, seen) for name in replaced}
    changing = {name for name in replaced if any(len(set(own)) > 1 for own in beside[name])}
    if changing or len(replaced) > 1:
        return changing
    return {name for name in replaced if all(len(own) < 2 for own in beside[name])}


def _beside(name: str, seen: Mapping[Values, int]) -> list[list[int]]:
    """The measured intervals of the values that differ in this placeholder alone."""
    others: dict[Values, list[int]] = defaultdict(list)
    for values, steps in seen.items():
        others[tuple(pair for pair in values if pair[0] != name)].append(steps)
    return list(others.values())


def _varied(values: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for own in values for name in own)
    return [name for name in names if len({own.get(name) for own in values}) > 1]


def _strategy(run: SeenRun, shown: Sequence[str]) -> str:
    values = run.cell.values
    return ", ".join(f"{name}={values[name]}" for name in shown if name in values)


def _engines(runs: Sequence[SeenRun]) -> str:
    return " and ".join(
        sorted({kind for run in runs for one in run.checkpoints for kind in one.kinds})
    )


def _intervals(runs: Sequence[SeenRun]) -> dict[str, int]:
    measured: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.measures.interval_steps:
            measured[run.cell.setup].append(run.measures.interval_steps)
    return {
        run.cell.setup: max(1, round(median(own))) if (own := measured.get(run.cell.setup)) else 0
        for run in runs
    }
