"""The registry of figures: what the workflow must know of each without importing matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ckptbench.matrix.catalogue import FAULTS
from ckptbench.matrix.cell import Cell

if TYPE_CHECKING:
    import pandas as pd

    from ckptbench.figures.kit.panels import PaperFigure


def _every(cell: Cell) -> bool:
    return True


def _whole(cell: Cell) -> bool:
    return cell.is_undisturbed


def _checkpointed(cell: Cell) -> bool:
    """Whether the checkpoints of the run are timed."""
    return cell.is_undisturbed and not cell.is_baseline


def _compared(cell: Cell) -> bool:
    return cell.is_compared


def _killed(cell: Cell) -> bool:
    return cell.is_killed


def _struck(cell: Cell) -> bool:
    """Whether the run shows what failures cost."""
    return cell.is_struck and not cell.is_killed


def _drawn(cell: Cell) -> bool:
    """Whether drawn failures strike the run: of such the decision predicts the goodput."""
    return "mean_s" in FAULTS[cell.faults.name].options


def _several_strategies(cells: Collection[Cell]) -> bool:
    return len({cell.strategy for cell in cells}) > 1


def _several_points(cells: Collection[Cell]) -> bool:
    """Whether a curve against ranks has a shape: two points have none."""
    return len({cell.ranks for cell in cells}) > 2


def _several_epochs(cells: Collection[Cell]) -> bool:
    return max(cell.epochs for cell in cells) > 2


def _always(cells: Collection[Cell]) -> bool:
    return True


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
    """Whether this cell gives the figure something to show."""
    tells: Callable[[Collection[Cell]], bool] = _always
    """Whether the cells that do, of which there is one at least, are enough for it to say something."""

    def is_of(self, cells: Iterable[Cell]) -> bool:
        """Whether a study with these cells draws it."""
        own = [cell for cell in cells if self.shows(cell)]
        return bool(own) and self.tells(own)

    def draw(self, tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
        """The figure, in the style of the paper. `tables` holds at least `self.tables`."""
        from ckptbench.figures.kit.letters import lettered

        function: Callable[[Mapping[str, pd.DataFrame]], PaperFigure]
        function = importlib.import_module(f"ckptbench.figures.{self.module}").draw
        with lettered(tables) as legible:
            return function(legible.tables)


DISTURBED = ("runs", "machine")
"""Tables that say which runs others disturbed, for figures of times."""

# fmt: off
FIGURES = {
    "overhead": FigureEntry("overhead", ("overhead", *DISTURBED, "provenance"), "Overhead of checkpointing", _whole),
    "strategies": FigureEntry("strategies", ("strategies", *DISTURBED, "provenance"), "What a checkpoint of each strategy costs", _checkpointed, _several_strategies),
    "stall": FigureEntry("stall", ("stall", "checkpoint_cost", *DISTURBED, "provenance"), "What one checkpoint blocks", _whole),
    "timeline": FigureEntry("timeline", ("timeline", *DISTURBED, "provenance"), "One checkpoint of each strategy", _checkpointed),
    "sizes": FigureEntry("sizes", ("sizes", "provenance"), "What a checkpoint weighs", _whole),
    "scaling": FigureEntry("scaling", ("scaling", "checkpoint_cost", *DISTURBED, "provenance"), "Throughput and cost against ranks", _whole, _several_points),
    "training": FigureEntry("training", ("training", "provenance"), "Loss and accuracy", tells=_several_epochs),
    "determinism": FigureEntry("determinism", ("training", "resume_proof", "restore", "provenance"), "Resumed training against uninterrupted", _compared),
    "determinism_cost": FigureEntry("determinism_cost", ("determinism_cost", *DISTURBED, "provenance"), "Cost of deterministic mode", _timed_deterministic),
    "divergence": FigureEntry("divergence", ("divergence", "resume_proof", "restore", "provenance"), "What differs after a restart", _compared),
    "recovery": FigureEntry("recovery", ("goodput", *DISTURBED, "provenance"), "Where the time of a failure goes", _struck),
    "goodput": FigureEntry("goodput", ("goodput", *DISTURBED, "provenance"), "Useful time against failures", _struck),
    "aftermath": FigureEntry("aftermath", ("aftermath", "provenance"), "Training after failures", _struck),
    "advice": FigureEntry("advice", ("goodput_curves", "advice", "failure_rates", "decision_costs"), "How often to checkpoint", _checkpointed),
    "scale": FigureEntry("scale", ("scale", "failure_rates", "decision_costs"), "The best goodput against GPUs", _checkpointed),
    "validation": FigureEntry("validation", ("validation", "provenance"), "Predicted and measured goodput", _drawn),
    "restore": FigureEntry("restore", ("restore", *DISTURBED, "provenance"), "How long a restart takes", _killed),
}
# fmt: on
OWN_FIGURES = {
    **{
        name: replace(FIGURES[name], tables=(*FIGURES[name].tables, "own_saves"))
        for name in ("overhead", "strategies", "stall", "timeline")
    },
    **{name: FIGURES[name] for name in ("advice", "scale")},
}
"""Those of an own training."""
