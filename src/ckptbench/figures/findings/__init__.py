"""What a study found, in sentences that are made from its tables: with them the report begins."""

DECISION = ("advice", "scale", "failure_rates", "decision_costs", "validation")
"""The tables that the sentences on the decision are made from. Known without importing pandas."""
TABLES = (
    *DECISION,
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
"""The tables that all sentences are made from."""
