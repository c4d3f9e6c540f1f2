"""How often to checkpoint, with which strategy, and how to recover: from measured costs and failure rates."""

COST_TABLES = (
    "runs",
    "steps",
    "phases",
    "failures",
    "restore",
    "scaling",
    "overhead",
    "strategies",
    "machine",
    "provenance",
)
"""The tables of a study that costs come from. Known without importing pandas."""
RATE_FACTORS = (1 / 3, 3.0)
"""Factors of a rate that nobody has measured on the reader's machine: three quarters of other machines lie between them, as ln 3 is 1.17 times
`rates.ELSEWHERE`."""
BETWEEN = 15
"""So many rates between the ends of an interval are tried for what is saved, which may be least or most there."""
