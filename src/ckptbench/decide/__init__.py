"""How often to checkpoint, with what, and how to recover: from what was measured and how often machines fail."""

COST_TABLES = (
    "runs",
    "steps",
    "phases",
    "checkpoints",
    "failures",
    "restore",
    "scaling",
    "strategies",
    "goodput",
    "provenance",
)
"""The tables of a study that costs, and what was measured under failures, come from. Known without importing pandas."""
