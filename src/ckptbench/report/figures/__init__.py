"""The registry of figures: what the workflow must know of each without importing matplotlib.

A figure is one module of this folder: a literal `FIGURE` says its title, its tables and for which studies it is drawn; `draw` draws it.
`write_figure` (`report.figures.files`) reads the tables with `read_tables`, calls `draw`, and saves its figure with `savefig`.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckptbench.matrix.cell import Cell

if TYPE_CHECKING:
    import pandas as pd

    from ckptbench.report.figures.kit.panels import PaperFigure


SYSTEM = ("framework", "model", "dataset", "ranks", "batch_size", "epochs", "optimizer", "precision", "accelerator")  # fmt: skip
"""Fields of a cell in which the runs of both modes are equal."""


def _in_both_modes(cells: Collection[Cell]) -> int:
    """How many systems run in deterministic mode and in default mode too. The cost of one is a sentence, and no figure."""
    modes = ({_system(cell) for cell in cells if cell.deterministic is on} for on in (True, False))
    return len(set.intersection(*modes))


def _system(cell: Cell) -> tuple[object, ...]:
    return tuple(getattr(cell, field) for field in SYSTEM)


OF: Mapping[str, Callable[[Cell], bool]] = {
    "every run": lambda cell: True,
    "undisturbed runs": lambda cell: cell.is_undisturbed,
    "timed checkpoints": lambda cell: cell.is_undisturbed and not cell.is_baseline,
    "baselines": lambda cell: cell.is_baseline and cell.is_undisturbed,
    "compared runs": lambda cell: cell.is_compared,
    "killed runs": lambda cell: cell.is_killed,
    "runs with failures": lambda cell: cell.is_struck and not cell.is_killed,
}
"""Which cells give a figure something to show, by the words of its `of`."""
NEEDS: Mapping[str, Callable[[Collection[Cell]], bool]] = {
    "any": lambda cells: True,
    "several strategies": lambda cells: len({cell.strategy for cell in cells}) > 1,
    "three numbers of ranks": lambda cells: len({cell.ranks for cell in cells}) > 2,
    "several systems in both modes": lambda cells: _in_both_modes(cells) > 1,
}
"""Whether these cells, of which there is at least one, are enough for a figure, by the words of its `needs`."""
ABOUT: Mapping[str, str] = {
    "cost": "What a checkpoint costs",
    "size": "Size and format",
    "restart": "Restarts",
    "failure": "Failures",
    "decision": "The decision",
}
"""The chapters in which readers meet the figures, in their order, by the words of `about`."""


@dataclass(frozen=True, slots=True)
class FigureEntry:
    """What the literal `FIGURE` of a module says."""

    module: str
    title: str
    tables: tuple[str, ...]
    """Names of tables, `results/tables/<name>.parquet`; `provenance` is for the caption."""
    about: str
    of: str = "every run"
    needs: str = "any"

    def shows(self, cell: Cell) -> bool:
        """Whether this cell gives the figure something to show."""
        return OF[self.of](cell)

    def is_of(self, cells: Iterable[Cell]) -> bool:
        """Whether a study with these cells draws it."""
        shown = [cell for cell in cells if self.shows(cell)]
        return bool(shown) and NEEDS[self.needs](shown)

    def draw(self, tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
        """The figure, in the style of the paper. `tables` holds at least `self.tables`."""
        from ckptbench.report.figures.kit.style import paper
        from ckptbench.report.figures.kit.words import worded

        function: Callable[[Mapping[str, pd.DataFrame]], PaperFigure]
        function = importlib.import_module(f"ckptbench.report.figures.{self.module}").draw
        own = {name: tables[name] for name in self.tables}
        with paper(own):
            return function(worded(own))


_FIGURE = re.compile(r"^FIGURE = (\{.*?\})$", re.MULTILINE | re.DOTALL)


def _entry(module: Path) -> Iterable[FigureEntry]:
    """The entry of a module, read from its source: importing it would import matplotlib. None of a module that is no figure."""
    source = module.read_text(encoding="utf-8")
    if found := _FIGURE.search(source):
        yield FigureEntry(module.stem, **ast.literal_eval(found[1]))
    elif re.search("^def draw\\(", source, re.MULTILINE):
        raise ValueError(
            f"{module} draws, but has no line `FIGURE = {{`, or one that does not end with a line `}}`"
        )


def _in_order(entries: Iterable[FigureEntry]) -> Iterable[FigureEntry]:
    chapters = list(ABOUT)
    return sorted(entries, key=lambda entry: (chapters.index(entry.about), entry.module))


FIGURES: dict[str, FigureEntry] = {
    entry.module: entry
    for entry in _in_order(
        entry for module in Path(__file__).parent.glob("*.py") for entry in _entry(module)
    )
}
"""In the order in which they are read."""
