"""Answers as people read them: quantities with units, words for numbers, and the screen that says how often to checkpoint."""

DECISION = ("advice", "scale", "failure_rates", "decision_costs")
"""The tables of the decision that an answer is made from. Known without importing pandas."""
STUDY_TABLES = (
    "overhead",
    "sizes",
    "machine",
    "consistency",
    "resume_proof",
    "goodput",
    "provenance",
)
"""The other tables that it is made from. Costs that a user gives have none of these."""
