"""What a study of an own training ends in. Known without importing pandas."""

from __future__ import annotations

from ckptbench.analysis.tables.registry import DECIDED
from ckptbench.report.answer import DECISION, STUDY_TABLES

UNPROVEN = ("consistency", "resume_proof", "goodput")
"""Tables of the main study that the answer reads, and that are empty here: `ckptbench-probe check` tells of these."""
MEASURED = (
    "own_runs",
    "own_saves",
    "runs",
    "machine",
    "provenance",
    "stall",
    "overhead",
    "checkpoint_cost",
    "strategies",
    "timeline",
)
TABLES = (*MEASURED, *DECIDED, *UNPROVEN)
ANSWERED = (*DECISION, *STUDY_TABLES, "strategies", "own_runs", "own_saves")
"""Those that the answer is made from."""
