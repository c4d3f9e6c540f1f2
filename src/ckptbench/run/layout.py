"""The names of the files in a run folder, and the version of their contents."""

from __future__ import annotations

from pathlib import Path

MANIFEST = "manifest.json"
SEAL = "seal.json"
SEAL_COPY = "seal-copy.json"
"""The seal once more, with what the run was made from. A workflow removes a seal before it repeats a job, but not this."""
FINAL_ARRAYS = "final-*.npz"
KEPT_BYTES = 64 * 2**20
"""Final tensors of a rank are kept up to this total size. Larger ones would fill the disk; their digests suffice."""
STRIKES = "strikes-*.jsonl"
SCHEMA_VERSION = 6


def final_path(folder: Path, rank: int) -> Path:
    """File with all arrays at the end of a rank, under the names of their digests. Only runs with `proof` write it."""
    return folder / f"final-{rank}.npz"


def trace_path(folder: Path, rank: int) -> Path:
    return folder / f"trace-{rank}.jsonl"


def strikes_path(folder: Path, rank: int) -> Path:
    """The journal (STRIKES) of the failures that struck this rank, or the node on which it is the first rank."""
    return folder / f"strikes-{rank}.jsonl"


LAUNCHER_TRACE = "launcher.jsonl"
"""What the launcher saw: the counters of its machine, and of a struck run the losses and what it did about them."""

FILES = {
    MANIFEST: "what ran, on which machine and software, and how it ended",
    "trace-<rank>.jsonl": "what one rank did and when",
    LAUNCHER_TRACE: "what the launcher saw: counters of its machine, and losses",
    "strikes-<rank>.jsonl": "with faults: which failures struck",
    "final-<rank>.npz": "with `training.proof`: the arrays that a rank ended with, unless they are more than 64 MiB",
    SEAL: "sizes and SHA-256 of the files above. A folder without it is no result",
    SEAL_COPY: "the seal once more, and what the run was made from",
    "plan.json": "what the launcher told the ranks",
    "checkpoints/": "the versions that are kept, by default none; elsewhere if `checkpoints.folder` is set",
    ".lock": "locked while a launcher works on the folder",
    "kept-<number>/": "traces, and in `checkpoints/` versions, of an earlier attempt that could not be continued; nothing removes them",
}
"""All that a run folder can hold."""

MANIFEST_FIELDS = {
    "schema_version": f"{SCHEMA_VERSION}; another is refused",
    "cell_id": "the cell's name",
    "cell": "its fields",
    "training": "section `training` of the config, and `keep_during_run`",
    "seed": "`training.seed` plus the repeat",
    "run_id": "32 random hexadecimal digits; attempts that continue the run keep them",
    "dataset_sha256": "checksum of the dataset",
    "lock": "the environment's lock",
    "lock_sha256": "its checksum",
    "status": "`running` (or its launcher was killed), `complete`, `failed`, `interrupted` by a user, or `stopped` when told to, with a checkpoint",
    "error": "what ended the run, or null",
    "attempts": "1 if the run never continued",
    "requeues": "how often the scheduler stopped it and started it again",
    "failures": "those planned",
    "strikes": "those that struck",
    "started": "of the first attempt, UTC",
    "ended": "of the last attempt, UTC",
    "duration_s": "from `started` to `ended`",
    "clock": "the host's boot id, and the moment `started` by its monotonic clock and the time of day in ns, as one text",
    "measured_on": "`cpu` or `gpu`",
    "device": "`cpu`, or the model of the GPU",
    "host": "of the launcher: `host`, `kernel`, `cpu`, `cores`, `memory_bytes`, `gpus`, `checkpoint_file_system`, `scheduler_job`",
    "environment": "of the variables that ranks took over, those with a name that is known to change a figure; without users, passwords and keys of addresses",
    "hosts": "the host of each rank",
    "versions": "of every distribution of the environment",
    "ckptbench_version": "of this program",
    "source": "`revision`, and whether it was `dirty`; null outside of git",
    "parameters": "their number",
    "state_bytes": "what a checkpoint must hold: `model`, `optimizer` (of it `second_moments`), `rest`",
}
"""All fields of the manifest of a complete run."""
