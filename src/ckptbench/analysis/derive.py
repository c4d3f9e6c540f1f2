"""The collected tables to all tables that answer the study's questions."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.tables.registry import DERIVED


def derive(collected: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The derived tables by name, from the collected ones by name. Each may read those that were derived before it."""
    tables = dict(collected)
    for name, entry in DERIVED.items():
        tables[name] = entry.fill(tables)
    return {name: tables[name] for name in DERIVED}
