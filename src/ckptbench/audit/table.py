"""The table `audit`: one row a check."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pandas as pd

from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.audit.check import Check

AUDIT = Table(
    "audit",
    "One row a check of `make audit`, in the order of the checks.",
    ("number",),
    (
        Column("number", "integer", "1", "place of the check, from 1"),
        Column("check", "text", "", "files, calibration, A/A, recorder, fsync, cold reads or disturbed runs"),
        Column("subject", "text", "", "what was measured"),
        Column("value", "number", "the row's", "as measured; missing where it could not be"),
        Column("lo", "number", "the row's", "lower end of its 95 % interval"),
        Column("hi", "number", "the row's", "upper end of its interval"),
        Column("unit", "text", "", "of value, lo, hi, truth and limit: s, or 1 for ratios and shares"),
        Column("truth", "number", "the row's", "what the value must be"),
        Column("limit", "number", "the row's", "how far the interval may be from the truth, or what is allowed without one"),
        Column("verdict", "text", "", "holds, fails or unknown"),
        Column("meaning", "text", "", "what the verdict means for the study"),
    ),
)  # fmt: skip


def audit(checks: Sequence[Check]) -> pd.DataFrame:
    return AUDIT.rows(
        {"number": number, **dataclasses.asdict(check)}
        for number, check in enumerate(checks, start=1)
    )
