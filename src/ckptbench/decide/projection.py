"""What a checkpoint and a recovery cost with another number of GPUs, by what was measured at several numbers.

The row of `decision_costs` says in `growth` how, as JSON: `{"fit": ...}` has the three numbers of `formulas.fitted_s` by cost. Where it is empty, a cost is
taken to be the same at every number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ckptbench.decide import formulas

Row = Mapping[str, Any]

CONSTANT, FIT = "constant", "fit"
GROWING = ("stall_s", "slowdown_s", "durable_s", "shared_durable_s", "down_s")
"""The costs that depend on the number of GPUs."""


def projected(row: Row, gpus: int) -> dict[str, Any]:
    """The row of `decision_costs` with what it costs with so many GPUs: each cost, and the ends of its interval, in the same proportion."""
    own = dict(row)
    if gpus == row["ranks"] or not row["growth"]:
        return own
    for name, numbers in json.loads(row["growth"])[FIT].items():
        before, after = (formulas.fitted_s(each, *numbers) for each in (row["ranks"], gpus))
        factor = float(formulas.times_as_much(before, after))
        own |= {f"{name}{end}": row[f"{name}{end}"] * factor for end in ("", "_lo", "_hi")}
    return own


def projection(row: Row) -> str:
    """How the costs of the row are projected: `constant` or `fit`."""
    return FIT if row["growth"] else CONSTANT
