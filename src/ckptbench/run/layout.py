"""The names of the files in a run folder, and the version of their contents."""

from __future__ import annotations

from pathlib import Path

MANIFEST = "manifest.json"
SEAL = "seal.json"
SEAL_COPY = "seal-copy.json"
"""A copy of the seal, with the run's inputs. Before it repeats a job, the workflow removes the seal but not this copy."""
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
    """The journal (STRIKES) of the failures of this rank, or of the node whose first rank it is."""
    return folder / f"strikes-{rank}.jsonl"


LAUNCHER_TRACE = "launcher.jsonl"
"""The launcher's events: counters of its machine, and losses of ranks with the response to each."""

FILES = {
    MANIFEST: "cell, machine, software and outcome of the run",
    "trace-<rank>.jsonl": "the events of one rank, with times",
    LAUNCHER_TRACE: "the launcher's events: counters of its machine, and losses of ranks",
    "strikes-<rank>.jsonl": "with faults: the failures injected",
    "final-<rank>.npz": "with `training.proof`: a rank's final arrays, if at most 64 MiB",
    SEAL: "sizes and SHA-256 of the files above; a folder without a seal is not a result",
    SEAL_COPY: "a copy of the seal, and the inputs of the run",
    "plan.json": "the launcher's instructions to the ranks",
    "checkpoints/": "versions kept after the run, by default none; elsewhere if `checkpoints.folder` is set",
    ".lock": "locked while a launcher uses the folder",
    "kept-<number>/": "traces, and in `checkpoints/` versions, of an earlier attempt that could not be continued; never removed",
}
"""All possible contents of a run folder."""

MANIFEST_FIELDS = {
    "schema_version": f"{SCHEMA_VERSION}; others are refused",
    "cell_id": "the cell's name",
    "cell": "its fields",
    "training": "section `training` of the config, and `keep_during_run`",
    "seed": "`training.seed` plus the repeat",
    "run_id": "32 random hexadecimal digits, the same in all attempts of the run",
    "dataset_sha256": "checksum of the dataset",
    "lock": "the environment's lock; `<name>-present.txt`: it [was there](cluster.md#an-environment-that-is-there)",
    "lock_sha256": "SHA-256 of the lock",
    "status": "`running` (or its launcher was killed), `complete`, `failed`, `interrupted` by a user, or `stopped` on request, after a checkpoint",
    "error": "the error that ended the run, or null",
    "attempts": "their number; 1 if the run was never continued",
    "requeues": "how often the scheduler stopped and restarted the run",
    "failures": "planned failures",
    "strikes": "failures that occurred",
    "started": "start of the first attempt, UTC",
    "ended": "end of the last attempt, UTC",
    "duration_s": "from `started` to `ended`",
    "clock": "the host's boot id, and `started` on its monotonic clock and on the wall clock in ns, as one text",
    "measured_on": "`cpu` or `gpu`",
    "device": "`cpu`, or the model of the GPU",
    "host": "the launcher's: `host`, `kernel`, `cpu`, `cores`, `memory_bytes`, `gpus`, `checkpoint_file_system`, `scheduler_job`",
    "environment": "inherited environment variables that can change a figure; users, passwords and keys are removed from addresses",
    "hosts": "the host of each rank",
    "versions": "versions of all distributions in the environment, Python, CUDA, NCCL and the NVIDIA driver",
    "ckptbench_version": "version of this program",
    "source": "git `revision`, and whether it was `dirty`; null outside of git",
    "parameters": "number of parameters",
    "state_bytes": "minimum bytes of a checkpoint: `model`, `optimizer` (including `second_moments`), `rest`",
}
"""All fields of the manifest of a complete run."""
