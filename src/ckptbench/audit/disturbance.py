"""Which of the study's runs were disturbed: by the host of a virtual machine, or by other programs."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.collect.machine import LIMITS
from ckptbench.audit.check import NOTHING, Check, Words, against_limit, exactly

STUDY = "the study"
NAMED = 3
"""How many runs are named here. The table `machine` has all."""
SUBJECTS = {
    "stolen": "largest share of CPU time that the host took during a run of {}",
    "others": "largest share of CPU time that other programs used during a run of {}",
}


def checks(tables: Mapping[str, pd.DataFrame], of: str = STUDY) -> list[Check]:
    """From the table `machine`, if there is one. `of` says what its runs are."""
    machine = tables.get("machine")
    return [_check(name, limit, machine, of) for name, limit in LIMITS.items()]


def _check(name: str, limit: float, machine: pd.DataFrame | None, of: str) -> Check:
    known = machine[machine[name].notna()] if machine is not None else pd.DataFrame()
    worst = known.sort_values(name, ascending=False) if len(known) else known
    over = worst[worst[name] > limit] if len(worst) else worst
    named = ", ".join(f"{row['run']} ({row[name]:.1%})" for _, row in over.head(NAMED).iterrows())
    more = f" and {len(over) - NAMED} more in the table machine" if len(over) > NAMED else ""
    return against_limit(
        "disturbed runs",
        SUBJECTS[name].format(of),
        exactly(float(worst[name].iloc[0])) if len(worst) else NOTHING,
        limit=limit,
        at_most=True,
        unit="1",
        words=Words(
            holds=f"none of {len(known)} runs was disturbed by it",
            fails=f"{len(over)} of {len(known)} runs were disturbed: {_remedy(of, named + more)}",
            unknown=f"no run of {of} has these counters: none ran yet, or they are of an earlier version or of several nodes",
        ),
    )


def _remedy(of: str, named: str) -> str:
    if of != STUDY:
        return "the checks of the calibration tell of that as well, so close other programs and run the audit again"
    return f"{named}. Repeat them on a quiet machine; the note of the table overhead names their setups"
