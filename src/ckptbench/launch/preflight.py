"""Checks before a run starts: enough memory, enough disk space, writable folders, enough steps."""

from __future__ import annotations

import shutil
from pathlib import Path

from ckptbench.data.dataset import Dataset
from ckptbench.data.order import steps_per_epoch
from ckptbench.errors import LaunchError
from ckptbench.machine.memory import available_memory
from ckptbench.networks.models import ARCHITECTURES
from ckptbench.runs.plan import Plan

FLOAT_BYTES = 4
FRAMEWORK_BYTES = 1 << 30
"""Resident size of a rank before its network, rounded up: 0.3 GiB (Chainer) to 0.9 GiB (TensorFlow)."""
PARAMETER_COPIES = 6
"""Weights, gradients, momentum, the buffer that averages gradients, the initial weights, and one while a format writes."""
PROOF_COPIES = 4
"""More copies for a resume proof: weights and momentum are copied to be digested, and again to be written."""
ACTIVATION_COPIES = 2
"""Each layer's output and its gradient."""
FORMAT_MARGIN = 1.1
"""A checkpoint's size ÷ the bytes of the state, estimated from above for every format."""


def needed_memory(plan: Plan, dataset: Dataset, ranks: int) -> int:
    """Bytes of memory that this number of ranks needs together, estimated from above."""
    network = ARCHITECTURES[plan.cell.model](dataset.image_shape, dataset.classes)
    activations = network.activation_count(dataset.image_shape) * plan.cell.batch_size
    copies = PARAMETER_COPIES + (PROOF_COPIES if plan.training.proof else 0)
    floats = copies * network.parameter_count + ACTIVATION_COPIES * activations
    return ranks * (FRAMEWORK_BYTES + FLOAT_BYTES * floats)


def needed_disk(plan: Plan, dataset: Dataset) -> int:
    """Bytes of disk for the kept versions and the one that is being written. 0 for a baseline."""
    if plan.cell.is_baseline:
        return 0
    network = ARCHITECTURES[plan.cell.model](dataset.image_shape, dataset.classes)
    state = FLOAT_BYTES * (2 * network.parameter_count + plan.cell.ranks * network.buffer_count)
    return int((plan.training.keep_during_run + 1) * state * FORMAT_MARGIN)


def check(plan: Plan, *, ranks_here: int) -> None:
    """Check that this machine, which `ranks_here` ranks of the run share, has what the run needs.

    Raises LaunchError where memory or disk space is too small (it names both sizes and the remedy), where a folder
    cannot be written, or where the warm-up leaves no step to time. Raises DataError where the dataset has too few
    samples for one step.
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
    """Bytes of the versions that an earlier attempt has left. `needed_disk` counts them too."""
    # A damaged version may hold links that lead nowhere.
    return sum(path.lstat().st_size for path in folder.glob("version-*/*"))


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
