"""Columns that several tables share."""

from __future__ import annotations

from ckptbench.analysis.tables.schema import Column
from ckptbench.matrix.catalogue import FRAMEWORKS
from ckptbench.networks.tensor_groups import GROUPS

ATTEMPT = Column("attempt", "integer", "1", "from 1")
TENSOR = Column("tensor", "text", "", "its name, as `Framework.tensors` and `rank_state` give it")
GROUP = Column("group", "text", "", ", ".join(GROUPS))
RUN = Column("run", "text", "", "id of the cell: the name of its run folder")
RANK = Column("rank", "integer", "1", "the training process, from 0")
EPOCH = Column("epoch", "integer", "1", "from 0")
REPEAT = Column("repeat", "integer", "1", "which repeat of the cell, from 0")
SYSTEM_COLUMNS = (
    Column("framework", "text", "", ", ".join(FRAMEWORKS)),
    Column("model", "text", "", "the network"),
    Column("dataset", "text", "", "the training data"),
    Column("ranks", "integer", "1", "training processes"),
    Column("batch_size", "integer", "samples", "per rank and step"),
    Column("epochs", "integer", "1", "of the whole run"),
    Column("deterministic", "flag", "", "whether the framework's deterministic mode was on"),
    Column("accelerator", "text", "", "what the cell asks for: cpu or cuda"),
    Column("measured_on", "text", "", "what computed in fact: cpu or gpu"),
)
"""Columns in which a cell and its baseline are equal."""
CHECKPOINT_COLUMNS = (
    Column("strategy", "text", "", "who writes what and when, with its options"),
    Column("format", "text", "", "how the bytes lie in files; `none` for a baseline"),
    Column(
        "interval", "text", "", "`e5`: every 5 epochs, `s50`: every 50 steps, `never`: baseline"
    ),
)
HISTORY_COLUMNS = (
    Column(
        "history",
        "text",
        "",
        "`whole`: uninterrupted; `again`: a second run of the same seed; `killed_between`, `killed_inside` (checkpoints), `killed_thrice`",
    ),
    Column("omit", "text", "", "what restarts leave out on purpose; `nothing` but for controls"),
    Column(
        "cache", "text", "", "`cold`: restarts find no page of their checkpoint in memory; `warm`"
    ),
)
"""Columns in which a cell and its reference differ: the uninterrupted run that a resume proof compares it with."""
SETUP_COLUMNS = (*SYSTEM_COLUMNS, *CHECKPOINT_COLUMNS, *HISTORY_COLUMNS)
"""All columns that make a cell, without its repeat."""
SYSTEM = tuple(column.name for column in SYSTEM_COLUMNS)
SETUP = tuple(column.name for column in SETUP_COLUMNS)
MEASURED = Column("measured", "flag", "", "always true: no row is an extrapolation")

PLACE = Column("place", "integer", "1", "of the checkpoint in its run: 1 for the first")
STEADY = Column(
    "steady",
    "flag",
    "",
    "whether it came after the first keep_during_run + 1, so that blocks of removed versions were free for it",
)
