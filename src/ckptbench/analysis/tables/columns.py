"""Columns that several tables share."""

from __future__ import annotations

from ckptbench.analysis.tables.schema import Column
from ckptbench.matrix.networks.tensor_groups import GROUPS
from ckptbench.matrix.registry import FRAMEWORKS

ATTEMPT = Column("attempt", "integer", "1", "from 1")
TENSOR = Column("tensor", "text", "", "its name, as in `Framework.state_dict` and `local_state`")
GROUP = Column("group", "text", "", ", ".join(GROUPS))
RUN = Column("run", "text", "", "id of the cell: the name of its run folder")
RANK = Column("rank", "integer", "1", "the training process, from 0")
EPOCH = Column("epoch", "integer", "1", "from 0")
REPEAT = Column("repeat", "integer", "1", "which repeat of the setup, from 0")


def _with_spec(column: Column) -> tuple[Column, Column, Column]:
    """The column of a name with its options, and the two columns that hold them apart (`PluginSpec.columns`)."""
    name = column.name
    return (
        column,
        Column(f"{name}_name", "text", "", f"of the `{name}`, without options"),
        Column(f"{name}_options", "text", "", "JSON object: its options, by name"),
    )


MEASURED_ON = Column("measured_on", "text", "", "the device actually used: cpu or gpu")
SYSTEM_COLUMNS = (
    Column("framework", "text", "", ", ".join(FRAMEWORKS)),
    Column("model", "text", "", ""),
    Column("dataset", "text", "", ""),
    Column("ranks", "integer", "1", "training processes"),
    Column("batch_size", "integer", "samples", "per rank and step"),
    Column("epochs", "integer", "1", "of the whole run"),
    Column("optimizer", "text", "", "sgd or adamw"),
    Column("precision", "text", "", "of products: fp32 or bf16"),
    Column("deterministic", "flag", "", "whether the framework's deterministic mode was on"),
    Column("accelerator", "text", "", "the device requested: cpu or cuda"),
    MEASURED_ON,
)
"""Columns in which a cell and its baseline are equal."""
CHECKPOINT_COLUMNS = (
    *_with_spec(
        Column(
            "strategy",
            "text",
            "",
            "who writes what and when, with the options that differ from their defaults: `deepfreeze memory=1`",
        )
    ),
    Column("format", "text", "", "how the bytes lie in files; `none` for a baseline"),
    Column(
        "interval", "text", "", "`e5`: every 5 epochs, `s50`: every 50 steps, `never`: baseline"
    ),
)
RECOVERY_COLUMNS = _with_spec(
    Column(
        "recovery",
        "text",
        "",
        "how training continues after a failure",
    )
)
HISTORY_COLUMNS = (
    *_with_spec(
        Column(
            "history",
            "text",
            "",
            "`whole`: uninterrupted; `rerun`: a second run of the same seed; or the name of its faults",
        )
    ),
    *RECOVERY_COLUMNS,
    Column(
        "omit",
        "text",
        "",
        "state that a negative control leaves out at a restart; `nothing` in all other runs",
    ),
    Column(
        "cache",
        "text",
        "",
        "`cold`: the page cache has nothing of the checkpoint at a restart; `warm`: it may",
    ),
)
"""Columns in which a cell and its reference differ: the uninterrupted run that a resume proof compares it with."""
SETUP_COLUMNS = (*SYSTEM_COLUMNS, *CHECKPOINT_COLUMNS, *HISTORY_COLUMNS)
"""All columns that make a cell, without its repeat."""
SYSTEM = tuple(column.name for column in SYSTEM_COLUMNS)
RECOVERY = tuple(column.name for column in RECOVERY_COLUMNS)
SETUP = tuple(column.name for column in SETUP_COLUMNS)

MACHINE_COLUMNS = (
    Column("device", "text", "", "`cpu`, or the model of the GPU"),
    Column("host", "text", "", "name of the machine; of several, that of the launcher"),
    Column("cpu", "text", "", "model of the CPU"),
    Column("cores", "integer", "1", "those that the run could use"),
    Column("checkpoint_file_system", "text", "", "type of that file system"),
    Column("revision", "text", "", "of the study's source; missing outside git"),
)  # fmt: skip
"""Where a run was measured, and by what."""
STATE_COLUMNS = (
    Column("state_model_bytes", "integer", "bytes", "parameters: the minimum a checkpoint must contain"),
    Column("state_optimizer_bytes", "integer", "bytes", "momentum, or both moments: also in that minimum"),
    Column("state_second_moments_bytes", "integer", "bytes", "of these: second moments"),
    Column("state_rest_bytes", "integer", "bytes", "statistics and random states of all ranks"),
)  # fmt: skip
REPEATS = Column("repeats", "integer", "1", "runs with valid timing")
NOTE = Column("note", "text", "", "what to know before quoting the row")
START_NS = Column("start_ns", "integer", "ns", "monotonic clock of the rank's host")
SAVED_STEP = Column("step", "integer", "1", "completed steps that the checkpoint contains")
HOLD_COLUMNS = (
    Column("update_hold_s", "number", "s", "part of the stall: updates waited for the capture"),
    Column("save_hold_s", "number", "s", "not in the stall: the next save waited for this one"),
    Column("removal_hold_s", "number", "s", "part of the stall: the next save waited for the removal of old versions"),
)  # fmt: skip
WRITING_COLUMNS = (
    Column("write_s", "number", "s", "until the framework's own write returned"),
    Column("sync_s", "number", "s", "from then until the files were on stable storage"),
    Column("checksum_s", "number", "s", "from then until the checksums were complete and the manifest was on stable storage"),
    Column("commit_s", "number", "s", "from then until the renamed folder was on stable storage"),
)  # fmt: skip
PLACE = Column("place", "integer", "1", "of the checkpoint in its run: 1 for the first")
STEADY = Column(
    "steady",
    "flag",
    "",
    "whether it is in the [steady state](method.md#steady-state): after the first `checkpoints.keep_during_run` + 1",
)

STRATEGY_COLUMNS = (
    Column(
        "blocking",
        "flag",
        "",
        "whether a save returns only when the rank's files are written",
    ),
    Column(
        "shared_every",
        "integer",
        "1",
        "every n-th version goes to the level `shared`; 0: none",
    ),
)
"""What a cost depends on of a strategy and its options."""
LEVELS_REACHED = Column(
    "levels",
    "text",
    "",
    "where the version lies, the nearest first, joined by `+`: `memory`, `node`, `shared`",
)
LOST_PARTS = {
    "unfinished_s": "work since the end of the last step or save, lost at the failure",
    "detection_s": "until the launcher or the other ranks noticed the loss",
    "ending_s": "until all processes of the attempt had ended",
    "choice_s": "until the version to resume from was found and checked",
    "launch_s": "until rank 0 had started and all ranks had come up",
    "import_s": "of the framework",
    "build_s": "of connections, dataset, network and optimizer",
    "regroup_s": "until ranks had agreed on the members and the step to continue from",
    "load_s": "of the version, or of the state that another rank sent",
    "again_s": "repeating lost steps, checkpoints and evaluations",
    "slower_s": "extra time of slower steps: a slow rank, the first step after a recovery, fewer ranks (negative if these are faster)",
    "rest_s": "the remainder",
}
"""The parts of the time that a failure costs, in seconds, in their order: columns of several tables."""
