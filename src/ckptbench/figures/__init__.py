"""The registry of figures: what the workflow must know of each without importing matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckptbench.matrix.catalogue import FAULTS, WHOLE
from ckptbench.matrix.cell import Cell

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def _every(cell: Cell) -> bool:
    return True


def _whole(cell: Cell) -> bool:
    return cell.is_undisturbed


def _checkpointed(cell: Cell) -> bool:
    """Whether the checkpoints of the run are timed."""
    return cell.is_undisturbed and not cell.is_baseline


def _compared(cell: Cell) -> bool:
    """Whether the run is compared with an uninterrupted one."""
    return cell.history != WHOLE


def _killed(cell: Cell) -> bool:
    return cell.is_killed


def _struck(cell: Cell) -> bool:
    """Whether failures of a trace strike the run."""
    return cell.is_struck


def _drawn(cell: Cell) -> bool:
    """Whether drawn failures strike the run: of such the decision predicts the goodput."""
    return cell.is_struck and "mean_s" in FAULTS[cell.faults.name].options


def _no_cell(cell: Cell) -> bool:
    return False


def _timed_deterministic(cell: Cell) -> bool:
    return cell.deterministic and cell.is_baseline and cell.is_undisturbed


@dataclass(frozen=True, slots=True)
class FigureEntry:
    """One figure: where its `draw` is, the tables that it reads, and its title in the report."""

    module: str
    tables: tuple[str, ...]
    """Names of tables, `results/tables/<name>.parquet`; `provenance` is for the caption."""
    title: str
    shows: Callable[[Cell], bool] = _every
    """Whether this cell gives the figure something to show. A study draws a figure that any of its cells does this for."""

    def draw(self, tables: Mapping[str, pd.DataFrame]) -> Figure:
        """The figure, in the style of the paper. `tables` holds at least `self.tables`."""
        from ckptbench.figures.kit.letters import lettered

        function: Callable[[Mapping[str, pd.DataFrame]], Figure]
        function = importlib.import_module(f"ckptbench.figures.{self.module}").draw
        with lettered(tables) as legible:
            return function(legible)


# fmt: off
FIGURES = {
    "overhead": FigureEntry("overhead", ("overhead", "provenance"), "Overhead of checkpointing", _whole),
    "strategies": FigureEntry("strategies", ("strategies", "provenance"), "What a checkpoint of each strategy costs", _checkpointed),
    "stall": FigureEntry("stall", ("stall", "checkpoint_cost", "provenance"), "What one checkpoint blocks", _whole),
    "timeline": FigureEntry("timeline", ("timeline", "provenance"), "One checkpoint of each strategy", _checkpointed),
    "sizes": FigureEntry("sizes", ("sizes", "provenance"), "What a checkpoint weighs", _whole),
    "scaling": FigureEntry("scaling", ("scaling", "checkpoint_cost", "provenance"), "Throughput and cost against ranks", _whole),
    "training": FigureEntry("training", ("training", "provenance"), "Loss and accuracy"),
    "determinism": FigureEntry("determinism", ("training", "resume_proof", "restore", "provenance"), "Resumed training against uninterrupted", _compared),
    "determinism_cost": FigureEntry("determinism_cost", ("determinism_cost", "provenance"), "Cost of deterministic mode", _timed_deterministic),
    "divergence": FigureEntry("divergence", ("divergence", "resume_proof", "restore", "provenance"), "What differs after a restart", _compared),
    "recovery": FigureEntry("recovery", ("goodput", "provenance"), "Where the time of a failure goes", _struck),
    "goodput": FigureEntry("goodput", ("goodput", "provenance"), "Useful time against failures", _struck),
    "aftermath": FigureEntry("aftermath", ("aftermath", "provenance"), "Training after failures", _struck),
    "advice": FigureEntry("advice", ("goodput_curves", "advice", "failure_rates", "decision_costs"), "How often to checkpoint", _checkpointed),
    "scale": FigureEntry("scale", ("scale", "failure_rates", "decision_costs"), "The best goodput against GPUs", _checkpointed),
    "validation": FigureEntry("validation", ("validation", "provenance"), "Predicted and measured goodput", _drawn),
    "failure_fits": FigureEntry("failure_fits", ("failure_rates", "failure_fits"), "How often failures come", _no_cell),
    "restore": FigureEntry("restore", ("restore", "provenance"), "How long a restart takes", _killed),
}
# fmt: on
