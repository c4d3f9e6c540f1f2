"""The registry of tables: their names and places, known without importing pandas.

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
    """One table: its name, and the module of `ckptbench` that it is in."""

    name: str
    module: str

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


def _entries(room: str, modules: Mapping[str, str]) -> dict[str, TableEntry]:
    return {name: TableEntry(name, f"{room}.{module}") for name, module in modules.items()}


COLLECTED = _entries(
    "analysis",
    {
        "runs": "collect.runs",
        "steps": "collect.steps",
        "epochs": "collect.rank_events",
        "checkpoints": "collect.checkpoints",
        "evaluations": "collect.rank_events",
        "phases": "collect.rank_events",
        "memory": "collect.rank_events",
        "digests": "collect.proof",
        "values": "collect.proof",
        "failures": "collect.failures",
        "lineage": "collect.lineage",
        "machine": "collect.machine",
    },
)
"""What the run folders say."""
DERIVED = _entries(
    "analysis",
    {
        "overhead": "cost.overhead",
        "sizes": "cost.sizes",
        "scaling": "cost.scaling",
        "stall": "cost.stall",
        "timeline": "cost.timeline",
        "checkpoint_cost": "cost.scaling",
        "resume_proof": "proof.resume_proof",
        "consistency": "proof.consistency",
        "divergence": "proof.divergence",
        "determinism_cost": "cost.determinism",
        "restore": "proof.restore",
        "strategies": "cost.strategies",
        "goodput": "cost.goodput",
        "provenance": "provenance",
    },
)
"""What follows from it."""
TABLES = {**COLLECTED, **DERIVED}
DECIDED = _entries(
    "decide",
    {
        "failure_rates": "decision",
        "decision_costs": "inputs",
        "advice": "advice",
        "scale": "advice",
        "goodput_curves": "advice",
    },
)
"""What to do about it: from these tables, or from costs that the user gives, and from the failure rates of config/failures."""
AUDITED = _entries("audit", {"audit": "check"})
"""Whether to believe it: from checks of the machine, and from these tables."""
EVERY = {**TABLES, **DECIDED, **AUDITED}
