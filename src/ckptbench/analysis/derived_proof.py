"""The tables on restarts: whether they give back the same training, and what they and determinism cost."""

from __future__ import annotations

from ckptbench.analysis.raw_proof import GROUP
from ckptbench.analysis.schema import (
    EPOCH,
    REPEAT,
    RUN,
    SETUP_COLUMNS,
    SYSTEM_COLUMNS,
    Column,
    Table,
)

RESUME_PROOF = Table(
    "resume_proof",
    "One row a run that was killed and restarted, or that is a second one of the same seed, and whose reference"
    " (the uninterrupted run) recorded a proof too.",
    ("run",),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("reference", "text", "", "the uninterrupted run that it is held against"),
        Column("attempts", "integer", "1", "1: never restarted"),
        Column("kills", "integer", "1", "times that SIGKILL ended an attempt"),
        Column("digests", "integer", "1", "compared: of every tensor and rank, after each epoch and at the end"),
        Column("different_digests", "integer", "1", "of these, those that differ"),
        Column("bit_equal", "flag", "", "whether no digest differs, and no element of any tensor at the end"),
        Column("first_epoch", "count", "1", "first epoch at whose end a digest differs; missing where none does"),
        Column("first_tensors", "text", "", "up to three tensors that differ there, joined by `, `; empty where none"),
        Column("groups", "text", "", "groups of tensors that differ at the end, joined by `, `; empty where none"),
        Column("tensors", "integer", "1", "names compared at the end"),
        Column("different_tensors", "integer", "1", "of these, those that differ on any rank"),
        Column("max_ulp", "count", "1", "largest of any weights or momentum tensor at the end; missing where a NaN stands against a number, or the arrays were not kept"),
        Column("relative_l2", "number", "1", "largest of any weights or momentum tensor at the end; NaN where the arrays were not kept"),
        Column("loss_difference", "number", "1", "largest over epochs, of the training loss over the steps that both recorded"),
        Column("accuracy_difference", "number", "1", "of the test accuracy after the last epoch; NaN without evaluation"),
        Column("missing", "text", "", "parts of the state that a restart did not give back, by the digests alone, joined by `, `; empty where all came back; missing where nothing was loaded"),
        Column("caught", "verdict", "", "of a negative control: whether `missing` is what was left out, and weights differ at the end (without `statistics`, which no training step reads: statistics do); missing for other runs"),
    ),
)  # fmt: skip

DIVERGENCE = Table(
    "divergence",
    "One row a run of `resume_proof`, group of tensors and epoch: how many digests differ from the reference's.",
    ("run", "group", "epoch"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        GROUP,
        EPOCH,
        Column("tensors", "integer", "1", "digests compared after the epoch, over all ranks"),
        Column("different", "integer", "1", "of these, those that differ"),
        Column("share", "number", "1", "different / tensors"),
    ),
)

DETERMINED = tuple(column for column in SYSTEM_COLUMNS if column.name != "deterministic")

DETERMINISM_COST = Table(
    "determinism_cost",
    "One row a system whose baseline ran in deterministic and in default mode. Times as in `overhead`.",
    tuple(column.name for column in DETERMINED),
    (
        *DETERMINED,
        Column("repeats", "integer", "1", "that ran in both modes with valid timing"),
        Column("time_s", "number", "s", "training time in deterministic mode, mean over repeats"),
        Column("default_s", "number", "s", "training time in default mode, mean over repeats"),
        Column("cost", "number", "1", "(time - default) / default, paired by repeat: 0.05 is 5 %"),
        Column("cost_lo", "number", "1", "lower end of its bootstrap 95 % interval"),
        Column("cost_hi", "number", "1", "upper end of its bootstrap 95 % interval"),
        Column("note", "text", "", "what to know before quoting the row; empty where nothing"),
    ),
)

RESTORE = Table(
    "restore",
    "One row a restart that went on from a checkpoint and reached its first step. The times are of the rank whose total is the longest.",
    ("run", "attempt"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("attempt", "integer", "1", "that the restart began, from 2"),
        Column("step", "count", "1", "completed steps that its checkpoint holds; missing of runs without a proof"),
        Column("epoch", "number", "1", "the same in epochs done: 1.5 is the middle of the second"),
        Column("after", "text", "", "when the kill came: between checkpoints, or the stage of one; empty where nothing was killed"),
        Column("launch_s", "number", "s", "the launcher starts the process"),
        Column("meet_s", "number", "s", "the ranks and the launcher find one another"),
        Column("import_s", "number", "s", "of the framework"),
        Column("join_s", "number", "s", "the framework's own communication is set up"),
        Column("data_s", "number", "s", "the data set is opened"),
        Column("build_s", "number", "s", "network and optimizer are made"),
        Column("evict_s", "number", "s", "the page cache is emptied of the checkpoint; 0 where warm; not in the total"),
        Column("load_s", "number", "s", "the checkpoint is read"),
        Column("first_step_s", "number", "s", "the first step after the restart"),
        Column("total_s", "number", "s", "sum of the phases from launch to first step, without evict"),
        Column("read_bytes", "count", "bytes", "fetched from storage during the load, all ranks, as the kernel counts; missing where it does not say"),
        Column("bytes", "count", "bytes", "of the files that a rank reads, the rank with the most"),
        Column("cold_shown", "verdict", "", "whether the kernel's counters say so: cold: on every node at least 0.9 of `bytes` came from storage; warm: on every node less than 0.1, which is also what a file system shows whose reads it does not count; missing where `read_bytes` is"),
    ),
)  # fmt: skip

PROOF_DERIVED = (RESUME_PROOF, DIVERGENCE, DETERMINISM_COST, RESTORE)
