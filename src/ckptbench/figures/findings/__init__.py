"""What a study found, in sentences that are made from its tables: with them the report begins."""

TABLES = (
    "overhead",
    "checkpoint_cost",
    "sizes",
    "scaling",
    "resume_proof",
    "determinism_cost",
    "restore",
    "provenance",
)
"""The tables that the sentences are made from. Known without importing pandas."""
