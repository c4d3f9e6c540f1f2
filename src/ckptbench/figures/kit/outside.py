"""Figures of an own training, which the probe has seen from outside: their words promise no more than it can see."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

SEEN = "own_saves"
"""The table that a study of an own training has beside those of the main study."""


def is_own(tables: Mapping[str, pd.DataFrame]) -> bool:
    return SEEN in tables
