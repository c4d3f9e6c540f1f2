"""What a study found, in sentences that are made from its tables: with them the report begins."""

TABLES = (
    "overhead",
    "checkpoint_cost",
    "sizes",
    "scaling",
    "consistency",
    "resume_proof",
    "determinism_cost",
    "restore",
    "goodput",
    "outcome",
    "provenance",
)
"""The tables that the sentences are made from. Known without importing pandas."""
