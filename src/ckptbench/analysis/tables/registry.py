"""The registry of tables: their names, places and titles, known without importing pandas.

A table is one module with two names in it: of `overhead`, the columns `OVERHEAD` and the function `overhead` that
fills them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from ckptbench.analysis.tables.schema import Table


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table: its name, the module of `ckptbench` that it is in, and what readers call it."""

    name: str
    module: str
    title: str

    @property
    def table(self) -> Table:
        """Its columns."""
        table: Table = self._get(self.name.upper())
        return table

    @property
    def fill(self) -> Callable[[Any], pd.DataFrame]:
        """The function that makes the frame: from all runs where it is collected, from the other tables where derived."""
        function: Callable[[Any], pd.DataFrame] = self._get(self.name)
        return function

    def _get(self, name: str) -> Any:
        return getattr(importlib.import_module(f"ckptbench.{self.module}"), name)


def _entries(room: str, modules: Mapping[str, tuple[str, str]]) -> dict[str, TableEntry]:
    return {
        name: TableEntry(name, f"{room}.{module}", title)
        for name, (module, title) in modules.items()
    }


COLLECTED = _entries(
    "analysis",
    {
        "runs": ("collect.runs", "Every run"),
        "steps": ("collect.steps", "Every step"),
        "epochs": ("collect.rank_events", "Every epoch"),
        "checkpoints": ("collect.checkpoints", "Every checkpoint"),
        "evaluations": ("collect.rank_events", "Loss and accuracy"),
        "phases": ("collect.rank_events", "How each run started"),
        "memory": ("collect.rank_events", "Memory in use"),
        "digests": ("collect.proof", "Digests of tensors"),
        "values": ("collect.proof", "Tensors at the end of a run"),
        "failures": ("collect.failures", "Every failure"),
        "lineage": ("collect.lineage", "Samples that failures cost"),
        "machine": ("collect.machine", "Who disturbed which run"),
    },
)
"""What the run folders say."""
DERIVED = _entries(
    "analysis",
    {
        "overhead": ("cost.overhead", "Overhead of checkpointing"),
        "sizes": ("cost.sizes", "Size of a checkpoint"),
        "scaling": ("cost.scaling", "Throughput against ranks"),
        "stall": ("cost.stall", "What each checkpoint blocks"),
        "timeline": ("cost.timeline", "A typical checkpoint, span by span"),
        "checkpoint_cost": ("cost.scaling", "Cost of one checkpoint against ranks"),
        "resume_proof": ("proof.resume_proof", "Is a resumed run the same, bit for bit?"),
        "consistency": ("proof.consistency", "Is every version the state of its step?"),
        "divergence": ("proof.divergence", "What differs after a restart"),
        "determinism_cost": ("cost.determinism", "Cost of deterministic mode"),
        "restore": ("proof.restore", "How long a restart takes"),
        "strategies": ("cost.strategies", "What a checkpoint of each strategy costs"),
        "goodput": ("cost.goodput", "Useful time under failures"),
        "provenance": ("provenance", "Where and when it was measured"),
    },
)
"""What follows from it."""
TABLES = {**COLLECTED, **DERIVED}
DECIDED = _entries(
    "decide",
    {
        "failure_rates": ("decision", "How often machines fail"),
        "decision_costs": ("inputs", "The costs behind the answer"),
        "advice": ("advice", "How often to checkpoint"),
        "scale": ("advice", "The best setup for each number of GPUs"),
        "goodput_curves": ("advice", "What each interval loses"),
    },
)
"""What to do about it: from these tables, or from costs that the user gives, and from the failure rates of config/failures."""
AUDITED = _entries("audit", {"audit": ("check", "Is the machine to be believed?")})
"""Whether to believe it: from checks of the machine, and from these tables."""
EVERY = {**TABLES, **DECIDED, **AUDITED}
