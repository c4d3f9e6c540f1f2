"""The tables that hold what runs recorded for the resume proof."""

from __future__ import annotations

from ckptbench.analysis.schema import EPOCH, RANK, RUN, Column, Table

ATTEMPT = Column("attempt", "integer", "1", "from 1")
TENSOR = Column("tensor", "text", "", "its name, as `Framework.tensors` and `rank_state` give it")
GROUP = Column(
    "group",
    "text",
    "",
    "weights, statistics, momentum, counters, random, dropout, position",
)

DIGESTS = Table(
    "digests",
    "One row a digest of a run that records a proof. Where two attempts recorded the same moment, both are here.",
    ("run", "rank", "attempt", "step", "when", "tensor"),
    (
        RUN,
        RANK,
        ATTEMPT,
        Column("when", "text", "", "epoch (after each), end, saved (a checkpoint), loaded (it), stepped (once since)"),
        EPOCH,
        Column("step", "integer", "1", "completed steps of the whole run"),
        TENSOR,
        GROUP,
        Column("digest", "text", "", "over dtype, shape and bytes: equal tensors, bit for bit, have equal digests"),
    ),
)  # fmt: skip

KILLS = Table(
    "kills",
    "One row a SIGKILL that a run sent itself.",
    ("run", "attempt"),
    (
        RUN,
        Column("attempt", "integer", "1", "that it ended, from 1"),
        RANK,
        Column("step", "integer", "1", "completed steps of the whole run"),
        EPOCH,
        Column("inside", "text", "", "of a checkpoint: begun, written, synced; empty between two"),
    ),
)

VALUES = Table(
    "values",
    "One row a run that has a reference in the study, rank and tensor: the tensor at the end of the run against"
    " that of the reference.",
    ("run", "rank", "tensor"),
    (
        RUN,
        Column("reference", "text", "", "the uninterrupted run that it is held against"),
        RANK,
        TENSOR,
        GROUP,
        Column("elements", "integer", "1", "of the tensor; of the larger where shapes differ"),
        Column("different", "integer", "1", "elements with other bits; all where type or shape differ"),
        Column("max_ulp", "count", "1", "largest distance in units in the last place (of whole numbers, in ones); missing where a NaN stands against a number, or type or shape differ"),
        Column("relative_l2", "number", "1", "||run - reference||2 / ||reference||2; infinite where that is no number"),
    ),
)  # fmt: skip

PROOF_RAW = (DIGESTS, KILLS, VALUES)
