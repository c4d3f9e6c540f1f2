"""The registry of figures: what the workflow must know of each without importing matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class FigureEntry:
    """One figure: where its `draw` is, the tables that it reads, and its title in the report."""

    module: str
    tables: tuple[str, ...]
    """Names of tables, `results/tables/<name>.parquet`; `provenance` is for the caption."""
    title: str

    def draw(self, tables: Mapping[str, pd.DataFrame]) -> Figure:
        """The figure, in the style of the paper. `tables` holds at least `self.tables`."""
        from ckptbench.figures.style import paper

        function: Callable[[Mapping[str, pd.DataFrame]], Figure]
        function = importlib.import_module(f"ckptbench.figures.{self.module}").draw
        with paper():
            return function(tables)


# fmt: off
FIGURES = {
    "overhead": FigureEntry("overhead", ("overhead", "provenance"), "Overhead of checkpointing"),
    "stall": FigureEntry("stall", ("stall", "provenance"), "What one checkpoint blocks"),
    "sizes": FigureEntry("sizes", ("sizes", "provenance"), "What a checkpoint weighs"),
    "scaling": FigureEntry("scaling", ("scaling", "checkpoint_cost", "provenance"), "Throughput and cost against ranks"),
    "training": FigureEntry("training", ("training", "provenance"), "Loss and accuracy"),
}
# fmt: on
