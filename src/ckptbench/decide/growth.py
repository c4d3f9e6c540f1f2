"""How the costs of a checkpoint change with the number of ranks, where a study has measured several numbers: a fit, for `projection`."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from ckptbench.analysis.tables.grouping import groups
from ckptbench.decide.projection import FIT, GROWING

TERMS = 3
"""Of `formulas.fitted_s`."""


def fitted(costs: pd.DataFrame, alike: Sequence[str]) -> list[str]:
    """For each row of `decision_costs` the text for its column `growth`, from the rows that have `alike` in common and other numbers of ranks.

    Each cost is fitted by non-negative least squares on 1, 1/N and N, where at least three numbers of ranks were measured: two can be
    met by any two of these terms. Where one number lies in all of its intervals, nothing shows that it changes.
    """
    found = [""] * len(costs)
    for _, rows in groups(costs.reset_index(drop=True), alike) if len(costs) else ():
        fits = {name: _fit(rows, name) for name in GROWING if _is_known(rows, name)}
        for place in rows.index if fits else ():
            found[place] = json.dumps({FIT: fits})
    return found


def _is_known(rows: pd.DataFrame, name: str) -> bool:
    known = rows.dropna(subset=name)
    lo, hi = (known[f"{name}{end}"].fillna(known[name]) for end in ("_lo", "_hi"))
    return bool(known["ranks"].nunique() >= TERMS and lo.max() > hi.min())


def _fit(rows: pd.DataFrame, name: str) -> list[float]:
    known = rows.dropna(subset=name)
    ranks = known["ranks"].to_numpy(float)
    terms = np.stack([np.ones_like(ranks), 1 / ranks, ranks], axis=1)
    numbers, _ = nnls(terms, known[name].clip(lower=0.0).to_numpy(float))
    return [float(each) for each in numbers]
