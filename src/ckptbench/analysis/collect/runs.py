"""The tables that hold what the run folders say, one event a row."""

from __future__ import annotations

from ckptbench.analysis.raw_proof import ATTEMPT, PROOF_RAW
from ckptbench.analysis.schema import EPOCH, RANK, REPEAT, RUN, SETUP_COLUMNS, Column, Table

RUNS = Table(
    "runs",
    "One row a run: one execution of a cell.",
    ("run",),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column(
            "reference",
            "text",
            "",
            "id of the cell's uninterrupted run: what a resume proof compares with; its own of one",
        ),
        Column("seed", "integer", "1", "of weights, data order and random draws"),
        Column("attempts", "integer", "1", "1: never gone on from a checkpoint"),
        Column("requeues", "integer", "1", "times that its scheduler stopped and requeued it"),
        Column(
            "timing_valid",
            "flag",
            "",
            "false where the run was resumed or requeued: no timing table reads it",
        ),
        Column("started", "time", "UTC", "when the first attempt began"),
        Column("ended", "time", "UTC", "when the last attempt ended"),
        Column("duration_s", "number", "s", "of the whole run, as its launcher saw it"),
        Column("steps", "integer", "1", "of the whole run"),
        Column("steps_per_epoch", "integer", "1", "of every rank"),
        Column("warmup_steps", "integer", "1", "first steps, left out of rates and overheads"),
        Column(
            "state_model_bytes",
            "integer",
            "bytes",
            "parameters and buffers: what the state must have",
        ),
        Column("state_optimizer_bytes", "integer", "bytes", "momentum: what the state must have"),
        Column("state_rest_bytes", "integer", "bytes", "statistics and random states of all ranks"),
        Column("device", "text", "", "`cpu`, or the model of the GPU"),
        Column("host", "text", "", "name of the machine; of several, that of the launcher"),
        Column("nodes", "integer", "1", "machines that the ranks were spread over"),
        Column("cpu", "text", "", "model of the CPU"),
        Column(
            "cores", "integer", "1", "CPU cores of the launcher's machine that the run could use"
        ),
        Column("memory_bytes", "integer", "bytes", "main memory of the machine"),
        Column("gpus", "text", "", "models of all GPUs of the machine, joined by `, `"),
        Column("kernel", "text", "", "release of the operating system's kernel"),
        Column(
            "checkpoint_file_system",
            "text",
            "",
            "type of the file system that took the checkpoints",
        ),
        Column("scheduler_job", "text", "", "id of the scheduler's job, missing without one"),
        Column("lock_sha256", "text", "", "of the lock file of the environment"),
        Column("revision", "text", "", "of the study's source, missing outside of git"),
        Column("dirty", "verdict", "", "whether the source had changes that were not committed"),
        Column("versions", "text", "", "JSON object: version by package"),
    ),
)

STEPS = Table(
    "steps",
    "One row a run, rank and step; where two attempts hold the same step, the later. Steps of an epoch that a kill cut short are missing in a resumed run.",
    ("run", "rank", "step"),
    (
        RUN,
        RANK,
        EPOCH,
        Column("step", "integer", "1", "index in the whole run, from 0"),
        Column("start_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column("duration_s", "number", "s", "of loading the batch, forward, backward, averaging and update"),
        Column("wait_s", "number", "s", "from the previous step, checkpoint or start of the epoch to the start; NaN in a resumed run"),
        Column("loss", "number", "1", "mean cross-entropy of the rank's batch before the update"),
        Column("warmup", "flag", "", "whether it is one of the first steps that rates leave out"),
    ),
)  # fmt: skip

EPOCHS = Table(
    "epochs",
    "One row a run, rank and epoch.",
    ("run", "rank", "epoch"),
    (
        RUN,
        RANK,
        EPOCH,
        Column("start_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column("duration_s", "number", "s", "steps and checkpoints, no evaluation"),
        Column("warmup_s", "number", "s", "the part up to the end of the last warm-up step"),
        Column("samples", "integer", "samples", "that the rank trained on"),
    ),
)

CHECKPOINTS = Table(
    "checkpoints",
    "One row a run, rank and checkpoint. The parts are known on the ranks that write and missing on others.",
    ("run", "rank", "step"),
    (
        RUN,
        RANK,
        EPOCH,
        Column("step", "integer", "1", "completed steps that the checkpoint holds"),
        Column("start_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column("stall_s", "number", "s", "the training loop of the rank was blocked"),
        Column("writes", "flag", "", "whether the rank wrote and committed"),
        Column("write_s", "number", "s", "until the framework's own write returned"),
        Column("sync_s", "number", "s", "from then until the files were on stable storage"),
        Column(
            "checksum_s", "number", "s", "from then until their checksums, begun before, were known"
        ),
        Column(
            "commit_s", "number", "s", "from then until the commit record was on stable storage"
        ),
        Column("durable_s", "number", "s", "from the start until everything was on stable storage"),
        Column("retention_s", "number", "s", "removal of old versions, after the commit"),
        Column("bytes", "count", "bytes", "of all files of this version"),
        Column("files", "count", "1", "number of files of this version"),
        Column("main_bytes", "count", "bytes", "of the files in the framework's format"),
        Column("rank_bytes", "count", "bytes", "of the files that hold each rank's own state"),
    ),
)

EVALUATIONS = Table(
    "evaluations",
    "One row a run, rank and evaluation: the rank's shard of the test set.",
    ("run", "rank", "epoch"),
    (
        RUN,
        RANK,
        EPOCH,
        Column("duration_s", "number", "s", "outside of every training time"),
        Column("samples", "integer", "samples", "of the shard"),
        Column("loss_sum", "number", "1", "sum of the cross-entropies of the shard"),
        Column("correct", "integer", "samples", "that were classified correctly"),
    ),
)

PHASES = Table(
    "phases",
    "One row a run, rank, attempt and phase of its start.",
    ("run", "rank", "attempt", "start_ns"),
    (
        RUN,
        RANK,
        Column("node", "text", "", "name of the rank's host"),
        ATTEMPT,
        Column("phase", "text", "", "launch, meet, import, join, data, build, evict, load, first_step"),
        Column("start_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column("duration_s", "number", "s", ""),
        Column("read_bytes", "count", "bytes", "of a load: fetched from storage by this rank, as the kernel counts; missing where it does not say"),
        Column("bytes", "count", "bytes", "of a load: of the files that this rank read"),
    ),
)  # fmt: skip

RAW = (RUNS, STEPS, EPOCHS, CHECKPOINTS, EVALUATIONS, PHASES, *PROOF_RAW)
