"""What a config asks of the study of trainers: which of them are checked, and for what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from ckptbench.config.section import Section
from ckptbench.config.values import FilePath, OneOf, Sweep, number
from ckptbench.matrix.plugin_spec import NAME

COST = "cost"
CHECKS: Mapping[str, tuple[str, ...]] = {
    "resume_epoch": ("resume_epoch",),
    "resume_within": ("resume_within",),
    "resume_ranks": ("resume_ranks",),
    "saves": ("saves", "pointer"),
    "kill": ("kill",),
    "powercut": ("powercut",),
    "stop": ("stop",),
    "fail": ("fail",),
    COST: (COST,),
}
"""Each is one job for a trainer; with the columns of the table that it fills. All but the cost are questions of `ckptbench-probe check all`."""
COLUMNS: Mapping[str, str] = {
    "resume_epoch": "restart at an epoch's end",
    "resume_within": "restart within an epoch",
    "resume_ranks": "restart on other ranks",
    "saves": "checkpoints whole",
    "kill": "kill during a save",
    "powercut": "power cut",
    "stop": "asked to stop",
    "pointer": "newest pointer",
    "fail": "disk full at a save",
    COST: "cost of a save",
}
"""In the order of the table, with the words at their head. A column without a check is left out."""
WITH_RANKS = ("resume_epoch", "resume_within", "resume_ranks")
"""Checks with all ranks, whatever they write: each has its own random state and place in the data."""
LONGEST_MINUTES = 24 * 60


class TrainersSection(Section):
    """Which trainers are checked, and for what."""

    folder: FilePath | None = None
    """Folder with a folder for each trainer. Without: `trainers`."""
    names: Sweep[Annotated[str, Field(pattern=f"^{NAME}$")]] | None = None
    """Folders of the trainers. Without: all."""
    checks: Sweep[Annotated[str, OneOf(tuple(CHECKS))]] = Field(default=[*CHECKS])
    """Which checks. Each is a job of its own for each trainer."""
    cell_minutes: Annotated[float, number(above=0, maximum=LONGEST_MINUTES)] = 15.0
    """A check that takes longer is ended, and cannot tell."""
