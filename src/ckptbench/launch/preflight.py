"""What a run needs of the machine, asked before it starts: memory, disk, folders that can be written."""

from __future__ import annotations

import shutil
from pathlib import Path

from ckptbench.architectures import ARCHITECTURES
from ckptbench.data import Dataset, steps_per_epoch
from ckptbench.errors import LaunchError
from ckptbench.plan import Plan

FLOAT_BYTES = 4
FRAMEWORK_BYTES = 1 << 30
"""Resident size of a rank before its network, rounded up: 0.3 GiB (Chainer) to 0.9 GiB (TensorFlow)."""
PARAMETER_COPIES = 6
"""Weights, gradients, momentum, the averaging's buffer, the initial weights, and one in a format's hands."""
PROOF_COPIES = 4
"""Of a proof: weights and momentum once more, as they are taken to be digested, and as they are written."""
ACTIVATION_COPIES = 2
"""Each output and its gradient."""
FORMAT_MARGIN = 1.1
"""No format needs more than the state's own bytes and a little."""


def needed_memory(plan: Plan, dataset: Dataset, ranks: int) -> int:
    """Bytes of memory that so many ranks of the run need together, estimated from above."""
    network = ARCHITECTURES[plan.cell.model](dataset.image_shape, dataset.classes)
    activations = network.activation_count(dataset.image_shape) * plan.cell.batch_size
    copies = PARAMETER_COPIES + (PROOF_COPIES if plan.training.proof else 0)
    floats = copies * network.parameter_count + ACTIVATION_COPIES * activations
    return ranks * (FRAMEWORK_BYTES + FLOAT_BYTES * floats)


def needed_disk(plan: Plan, dataset: Dataset) -> int:
    """Bytes that the versions kept and the one being written take; nothing for a baseline."""
    if plan.cell.is_baseline:
        return 0
    network = ARCHITECTURES[plan.cell.model](dataset.image_shape, dataset.classes)
    state = FLOAT_BYTES * (2 * network.parameter_count + plan.cell.ranks * network.buffer_count)
    return int((plan.training.keep_during_run + 1) * state * FORMAT_MARGIN)


def check(plan: Plan, *, ranks_here: int) -> None:
    """`ranks_here` of the run's ranks share this machine. Raises LaunchError with the two numbers and the remedy where the machine has less than the run needs.

    DataError where the dataset has too few samples for a step, LaunchError where no step is left to time.
    """
    dataset = Dataset.open(plan.dataset_folder)
    _check_steps(plan, dataset)
    for folder in (plan.run_folder, plan.checkpoint_folder):
        _check_writable(folder)
    _compare(
        f"{ranks_here} ranks of {plan.cell.model} need about",
        needed_memory(plan, dataset, ranks_here),
        available_memory() if plan.cell.accelerator == "cpu" else None,
        "of memory are free: use fewer ranks, a smaller batch_size or model",
    )
    _compare(
        f"{plan.training.keep_during_run + 1} checkpoint versions in {plan.checkpoint_folder} need about",
        needed_disk(plan, dataset),
        shutil.disk_usage(plan.checkpoint_folder).free + _held(plan.checkpoint_folder),
        "are free there: free some, set checkpoints.folder to another file system, or lower checkpoints.keep_during_run",
    )


def _held(folder: Path) -> int:
    """Bytes of the versions from which an attempt goes on, which are among those that it needs."""
    return sum(path.stat().st_size for path in folder.glob("version-*/*"))


def _check_steps(plan: Plan, dataset: Dataset) -> None:
    samples, limit = len(dataset.train_labels), plan.training.steps_per_epoch
    each = steps_per_epoch(samples, plan.cell.ranks, plan.cell.batch_size, limit)
    if plan.training.warmup_steps >= plan.cell.epochs * each:
        raise LaunchError(
            f"training.warmup_steps is {plan.training.warmup_steps}, and the run has "
            f"{plan.cell.epochs * each} steps in all: none is left to time; lower it, or train longer"
        )


def _compare(need: str, needed: int, available: int | None, have: str) -> None:
    if available is not None and needed > available:
        raise LaunchError(f"{need} {_in_words(needed)}, but {_in_words(available)} {have}")


def _in_words(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 / 10 else f"{size / 1e6:.2g} MB"


def _check_writable(folder: Path) -> None:
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise LaunchError(
            f"{folder} cannot be written ({error.strerror}): give it to this user, or name another folder"
        ) from error


def available_memory() -> int | None:
    """Bytes that can be had without swapping: the kernel's estimate, or less where a control group says so."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    limits = [fields.get("MemAvailable"), _control_group_headroom()]
    return min((limit for limit in limits if limit is not None), default=None)


def _control_group_headroom() -> int | None:
    """Bytes left in this process's control group (version 2), None where there is no limit."""
    group = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("::")[2].strip()
    folder = Path("/sys/fs/cgroup") / group.lstrip("/")
    try:
        limit = (folder / "memory.max").read_text(encoding="utf-8").strip()
        used = int((folder / "memory.current").read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if limit == "max" else int(limit) - used
