"""All tables of a study of an own training, from its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from ckptbench.analysis.cost.scaling import checkpoint_cost
from ckptbench.analysis.cost.timeline import timeline
from ckptbench.analysis.provenance import provenance
from ckptbench.analysis.tables.columns import SETUP
from ckptbench.analysis.tables.registry import DERIVED
from ckptbench.config.decision import DecisionSection
from ckptbench.decide.decision import decide
from ckptbench.decide.rates import FailureRate
from ckptbench.own import collected, costs
from ckptbench.own.made import TABLES, UNPROVEN
from ckptbench.own.naming import Named
from ckptbench.own.saves import own_runs, own_saves
from ckptbench.own.seen import SeenRun


def own_tables(
    runs: Sequence[SeenRun], rates: Sequence[FailureRate], choices: DecisionSection
) -> dict[str, pd.DataFrame]:
    """All of TABLES by name. `rates` has the one that is chosen."""
    named = Named.of(runs)
    timed = [run for run in runs if not run.untimed]
    tables = {
        "own_runs": own_runs(runs, named),
        "own_saves": own_saves(timed),
        "runs": collected.runs(runs, named),
        "machine": collected.machine(runs),
        "stall": collected.stall(timed, named),
    }
    # A run of an own training never goes on from an earlier one.
    tables["provenance"] = provenance(tables).assign(continued=0)
    known = costs.Timed({run.cell.id: run for run in timed}, tables)
    tables["overhead"] = costs.overhead(known)
    tables["checkpoint_cost"] = checkpoint_cost(tables)
    tables["strategies"] = costs.strategies(known, tables)
    tables["timeline"] = _timeline(timed, tables)
    decided = decide(costs.decision_costs(known, tables), rates, choices)
    empty = {name: DERIVED[name].table.rows([]) for name in UNPROVEN}
    every = {**tables, **decided, **empty}
    return {name: every[name] for name in TABLES}


def _timeline(timed: Sequence[SeenRun], tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Of checkpoints of which it is known when they were finished, and that steps followed, where a setup has such."""
    stall = tables["stall"][tables["stall"]["durable_s"].notna()]
    last = tables["runs"].set_index("run")["steps"]
    followed = stall["step"] < stall["run"].map(last)
    some = followed.groupby([stall[name] for name in SETUP]).transform("any")
    return timeline({**collected.progress(timed), "stall": stall[followed | ~some]})
