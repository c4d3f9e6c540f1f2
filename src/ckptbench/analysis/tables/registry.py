"""The tables that answer the study's questions, one module of this package each."""

from __future__ import annotations

from ckptbench.analysis.derived_proof import PROOF_DERIVED
from ckptbench.analysis.schema import (
    EPOCH,
    REPEAT,
    RUN,
    SETUP,
    SETUP_COLUMNS,
    SYSTEM,
    SYSTEM_COLUMNS,
    Column,
    Table,
)

MEASURED = Column("measured", "flag", "", "always true: no row is an extrapolation")

OVERHEAD = Table(
    "overhead",
    "One row a setup with checkpoints. Times are of the slowest rank of each epoch, without warm-up steps"
    " and evaluation; intervals are bootstrap 95 % intervals, missing where one observation is all there is.",
    SETUP,
    (
        *SETUP_COLUMNS,
        Column("steps_per_epoch", "integer", "1", "an interval of one epoch is so many steps"),
        Column("repeats", "integer", "1", "runs with valid timing"),
        Column("paired_repeats", "integer", "1", "of these, repeats whose baseline ran too"),
        Column("checkpoints", "integer", "1", "after the warm-up, over all repeats"),
        Column("time_s", "number", "s", "training time, mean over the paired repeats (over all where none is paired)"),
        Column("baseline_s", "number", "s", "training time of the baseline, mean over the paired repeats"),
        Column("paired", "number", "1", "(time - baseline) / baseline over paired repeats: 0.05 is 5 %"),
        Column("paired_lo", "number", "1", "lower end of its interval"),
        Column("paired_hi", "number", "1", "upper end of its interval"),
        Column("in_run", "number", "1", "(stalls + slowdown) / (period of a step outside every save x steps)"),
        Column("in_run_lo", "number", "1", "lower end of its interval"),
        Column("in_run_hi", "number", "1", "upper end of its interval"),
        Column("stall_s", "number", "s", "sum of the stalls of a run (slowest rank), mean over repeats"),
        Column("slowdown_s", "number", "s", "extra time of steps during background saves of a run, mean over repeats"),
        Column("overhead_without_fsync", "number", "1", "in_run had the loop gone on when the framework's write returned"),
        Column("agree", "verdict", "", "whether the two intervals overlap; missing where one is"),
        Column("note", "text", "", "what to know before quoting the row; empty where nothing"),
    ),
)  # fmt: skip

SIZES_KEY = ("framework", "model", "dataset", "ranks", "strategy", "format")

SIZES = Table(
    "sizes",
    "One row a framework, model, dataset, ranks, strategy and format, over all versions of all its runs.",
    SIZES_KEY,
    (
        *(column for column in SETUP_COLUMNS if column.name in SIZES_KEY),
        Column("versions", "integer", "1", "checkpoints that were weighed"),
        Column("files", "number", "1", "files of a version, median"),
        Column("bytes", "number", "bytes", "of a version on storage, median"),
        Column("bytes_min", "integer", "bytes", "of the smallest version"),
        Column("bytes_max", "integer", "bytes", "of the largest version"),
        Column("constant", "flag", "", "whether all versions have the same size"),
        Column("main_bytes", "number", "bytes", "of the files in the framework's format, median"),
        Column("rank_bytes", "number", "bytes", "of the files that hold each rank's own state, median"),
        Column("state_model_bytes", "integer", "bytes", "parameters and buffers: what the state must have"),
        Column("state_optimizer_bytes", "integer", "bytes", "momentum: what the state must have"),
        Column("state_rest_bytes", "integer", "bytes", "statistics and random states of all ranks"),
        Column("ratio", "number", "1", "bytes / all that the state must have"),
        Column("main_ratio", "number", "1", "main_bytes / (model and optimizer that the state must have)"),
    ),
)  # fmt: skip

SCALING = Table(
    "scaling",
    "One row a baseline: its throughput after the warm-up, against the smallest number of ranks measured."
    " The batch size per rank is fixed (weak scaling).",
    SYSTEM,
    (
        *SYSTEM_COLUMNS,
        Column("repeats", "integer", "1", "runs with valid timing"),
        Column("steps", "integer", "1", "timed steps over all repeats"),
        Column("images_per_s", "number", "images/s", "of all ranks together"),
        Column("images_per_s_lo", "number", "images/s", "lower end of the bootstrap 95 % interval"),
        Column("images_per_s_hi", "number", "images/s", "upper end of the bootstrap 95 % interval"),
        Column("reference_ranks", "integer", "1", "smallest number of ranks measured: what the next columns compare with"),
        Column("speedup", "number", "1", "images_per_s / that of the reference"),
        Column("efficiency", "number", "1", "speedup / (ranks / reference_ranks)"),
        Column("efficiency_lo", "number", "1", "lower end of the bootstrap 95 % interval"),
        Column("efficiency_hi", "number", "1", "upper end of the bootstrap 95 % interval"),
        MEASURED,
    ),
)  # fmt: skip

CHECKPOINT_COST = Table(
    "checkpoint_cost",
    "One row a setup with checkpoints: the cost of one checkpoint, to be drawn against ranks.",
    SETUP,
    (
        *SETUP_COLUMNS,
        Column("repeats", "integer", "1", "runs with valid timing"),
        Column("checkpoints", "integer", "1", "over all repeats"),
        Column("stall_s", "number", "s", "median stall of the slowest rank"),
        Column("stall_s_lo", "number", "s", "lower end of the bootstrap 95 % interval"),
        Column("stall_s_hi", "number", "s", "upper end of the bootstrap 95 % interval"),
        Column("durable_s", "number", "s", "median time until everything was on stable storage"),
        Column("paired", "number", "1", "as in `overhead`"),
        Column("in_run", "number", "1", "as in `overhead`"),
        MEASURED,
    ),
)

STALL = Table(
    "stall",
    "One row a checkpoint of a run with valid timing: its slowest rank, and the parts as the writing rank saw"
    " them (of several, the slowest).",
    ("run", "step"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        EPOCH,
        Column("step", "integer", "1", "completed steps that the checkpoint holds"),
        Column("warmup", "flag", "", "whether it came before the end of the warm-up"),
        Column("stall_s", "number", "s", "the training loop was blocked, slowest rank"),
        Column("write_s", "number", "s", "until the framework's own write returned"),
        Column("sync_s", "number", "s", "from then until the files were on stable storage"),
        Column("checksum_s", "number", "s", "from then until their checksums, begun before, were known"),
        Column("commit_s", "number", "s", "from then until the commit record was on stable storage"),
        Column("retention_s", "number", "s", "removal of old versions, after the commit"),
        Column("wait_s", "number", "s", "the rest of the stall: ranks waiting for one another; 0 where a save goes on after it"),
        Column("durable_s", "number", "s", "from the start until everything was on stable storage"),
        Column("bytes", "count", "bytes", "of all files of this version"),
    ),
)  # fmt: skip

TRAINING = Table(
    "training",
    "One row a run and epoch, resumed runs included.",
    ("run", "epoch"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("attempts", "integer", "1", "1: never interrupted"),
        EPOCH,
        Column("training_loss", "number", "1", "cross-entropy before each update, mean over steps and ranks"),
        Column("test_loss", "number", "1", "cross-entropy after the epoch, mean over the test set; NaN without evaluation"),
        Column("test_accuracy", "number", "1", "share of the test set classified correctly; NaN without evaluation"),
    ),
)  # fmt: skip

PROVENANCE = Table(
    "provenance",
    "One row a machine, device, file system and source revision.",
    ("measured_on", "host", "device", "first_date", "revision", "checkpoint_file_system", "cpu", "cores"),
    (
        Column("measured_on", "text", "", "cpu or gpu"),
        Column("device", "text", "", "`cpu`, or the model of the GPU"),
        Column("host", "text", "", "name of the machine"),
        Column("cpu", "text", "", "model of the CPU"),
        Column("cores", "integer", "1", "CPU cores that the run could use"),
        Column("checkpoint_file_system", "text", "", "type of the file system that took the checkpoints"),
        Column("revision", "text", "", "of the study's source, missing outside of git"),
        Column("dirty", "flag", "", "whether any run had source changes that were not committed"),
        Column("first_date", "text", "", "UTC day on which the first run began"),
        Column("last_date", "text", "", "UTC day on which the last run ended"),
        Column("runs", "integer", "1", "runs measured there"),
        Column("nodes_max", "integer", "1", "machines of the run that was spread over the most"),
        Column("repeats_min", "integer", "1", "repeats of the setup with the fewest, valid timing or not"),
        Column("repeats_max", "integer", "1", "repeats of the setup with the most"),
        Column("versions", "text", "", "JSON object: versions by package, joined by `, ` where runs differ"),
    ),
)  # fmt: skip

DERIVED = (OVERHEAD, SIZES, SCALING, CHECKPOINT_COST, STALL, TRAINING, *PROOF_DERIVED, PROVENANCE)
