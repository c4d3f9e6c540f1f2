"""Checks before a run starts: enough memory, enough disk space, usable folders, enough steps."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ckptbench.checkpointing.levels import KEPT_LOCAL, KEPT_SPREAD, elsewhere, open_levels
from ckptbench.checkpointing.store import held_bytes
from ckptbench.common.errors import CheckpointError, LaunchError
from ckptbench.common.memory import available_memory, free_shared_memory
from ckptbench.common.objects import ObjectPath
from ckptbench.common.remedies import blame, cause
from ckptbench.matrix.levels import MEMORY, NODE, SETTINGS, SHARED
from ckptbench.matrix.registry import FRAMEWORKS, SLOTS, STRATEGIES
from ckptbench.run.plan import FLOAT_BYTES, Plan

FRAMEWORK_BYTES = 1 << 30
"""Resident size of a rank before its network, rounded up: 0.3 GiB (Chainer) to 0.9 GiB (TensorFlow)."""
PARAMETER_COPIES = 5
"""Weights, gradients, the buffer that averages gradients, the initial weights, and one while a format writes; then the slots."""
PROOF_COPIES = 2
"""More copies for a resume proof: weights and slots are copied to be digested, and again to be written."""
ACTIVATION_COPIES = 2
"""Each layer's output and its gradient."""
UNFOLDED_COPIES = 2
"""Of the largest unfolded input: it is made, and copied once more for the product of matrices."""
MPI_BYTES = 6 << 20
"""Shared memory of a rank that others of its node send messages to through MPI: 5.4 MB with MPICH, with 2 and with 4 ranks."""
TRIAL = "trial"
"""Name of the object that says whether a store takes objects."""
FORMAT_MARGIN = 1.1
"""A checkpoint's size ÷ the bytes of the state, estimated from above for every format."""


def needed_memory(plan: Plan, ranks: int) -> int:
    """Bytes of memory that this number of ranks needs together, estimated from above."""
    activations = plan.sizes.activations * plan.cell.batch_size
    slots = SLOTS[plan.cell.optimizer]
    copies = PARAMETER_COPIES + slots + (PROOF_COPIES * (1 + slots) if plan.training.proof else 0)
    floats = copies * plan.sizes.parameters + ACTIVATION_COPIES * activations
    if FRAMEWORKS[plan.cell.framework].uses_im2col:
        floats += UNFOLDED_COPIES * plan.sizes.unfolded * plan.cell.batch_size
    return ranks * (FRAMEWORK_BYTES + FLOAT_BYTES * floats)


def needed_disk(plan: Plan, keep: int | None = None) -> int:
    """Bytes for the kept versions and the one that is being written. 0 for a baseline.

    `keep` versions stay; None: as many as the config says of the shared level.
    """
    if plan.cell.is_baseline:
        return 0
    kept = plan.training.keep_during_run if keep is None else keep
    return int((kept + 1) * plan.sizes.state_bytes(plan.cell) * FORMAT_MARGIN)


def needed_shared_memory(plan: Plan, ranks: int) -> int:
    """Bytes in /dev/shm that this number of ranks on a node needs together, estimated from above.

    What lies there without a place on it is killed by SIGBUS ("Bus error"). The memory of `async` and `deepfreeze` has no
    name, and is none of it; versions of the level `memory` are counted by `check_levels`.
    """
    speaks_mpi = FRAMEWORKS[plan.cell.framework].launcher == "mpiexec" and ranks > 1
    state = plan.sizes.updated_bytes(plan.cell) + FLOAT_BYTES * plan.sizes.buffers
    return ranks * speaks_mpi * MPI_BYTES + _shared_copies(plan, ranks) * int(state * FORMAT_MARGIN)


def _shared_copies(plan: Plan, ranks: int) -> int:
    """How many of the ranks copy the state to shared memory, for a process that writes it."""
    strategy = plan.cell.strategy
    if plan.cell.is_baseline:
        return 0
    if strategy.name == "torch_checkpointing":
        return 1  # rank 0, which may be on this node
    chosen = strategy.chosen(STRATEGIES[strategy.name].options)
    return ranks if chosen.get("checkpointer") == "process" else 0


def check(plan: Plan, *, ranks_here: int) -> None:
    """Check that this machine, which `ranks_here` ranks of the run share, has what the run needs.

    Raises LaunchError where memory or disk space is too small (it names both sizes and the remedy), where a folder
    cannot be written, or where the warm-up leaves no step to time. Raises DataError where the dataset has too few samples for one step.
    """
    _check_steps(plan)
    _check_folders(plan)
    _check_memory(plan, ranks_here)
    if isinstance(plan.checkpoint_folder, ObjectPath):
        return  # its space has no end
    _compare(
        f"{plan.training.keep_during_run + 1} checkpoint versions in {plan.checkpoint_folder} need about",
        needed_disk(plan),
        shutil.disk_usage(plan.checkpoint_folder).free + held_bytes(plan.checkpoint_folder),
        "are free there: free some, set checkpoints.folder to another file system, or lower checkpoints.keep_during_run",
    )


def check_node(plan: Plan, node: str, *, ranks_here: int, part: float) -> None:
    """Check the same of the node of this rank, for a run on several nodes, of which the launcher sees one.

    `part` is as for `check_levels`. Raises LaunchError or CheckpointError, which names the node.
    """
    try:
        _check_folders(plan)
        _check_memory(plan, ranks_here)
        check_levels(plan, node, part=part)
    except (LaunchError, CheckpointError) as error:
        raise type(error)(f"on {node}: {error}") from error


def _check_memory(plan: Plan, ranks_here: int) -> None:
    _compare(
        f"{ranks_here} ranks of {plan.cell.model} need about",
        needed_memory(plan, ranks_here),
        available_memory() if plan.cell.accelerator == "cpu" else None,
        "of memory are free, or left in this process's control group: use fewer ranks, a smaller batch_size or model, or ask for "
        "more memory",
    )
    _compare(
        f"{ranks_here} ranks of {plan.cell.model} need about",
        needed_shared_memory(plan, ranks_here),
        free_shared_memory(),
        "are free in /dev/shm, their shared memory: enlarge it (of a container: --shm-size), or use fewer ranks a node",
    )


def check_levels(plan: Plan, node: str | None, *, part: float) -> None:
    """Check that this node's own levels can hold its part of the versions of the run's strategy.

    `node` is None where all ranks are on one. The other nodes check their own (`check_node`). Raises LaunchError, also
    where two levels are one folder, and CheckpointError where another user has made one.
    """
    levels = open_levels(plan, node=node)
    local = levels.local
    if not local or plan.cell.is_baseline:
        return
    _check_apart(plan, local)
    levels.make()
    for level, store in local.items():
        _check_writable(store.folder, elsewhere(level))
    kept = KEPT_LOCAL if node is None else KEPT_SPREAD
    needed = int(needed_disk(plan, kept) * part)
    for level, base in ((MEMORY, plan.memory_folder), (NODE, plan.node_folder)):
        if level in local and base is not None:
            _compare(
                f"{kept + 1} checkpoint versions in {base} need about",
                needed,
                shutil.disk_usage(next(p for p in (base, *base.parents) if p.exists())).free
                + held_bytes(local[level].folder),
                f"are free there: free some, set checkpoints.{level}_folder to another folder, or set {level}: 0",
            )


def _check_apart(plan: Plan, local: Iterable[str]) -> None:
    """Raises LaunchError where memory and disk are one folder: what is lost there is lost at both levels."""
    memory, node = plan.memory_folder, plan.node_folder
    if memory is None or node is None or not {MEMORY, NODE} <= set(local):
        return
    if _same_folder(memory, node):
        raise LaunchError(
            f"{SETTINGS[NODE]} ({node}; null: $TMPDIR or /tmp) is the folder of {SETTINGS[MEMORY]} ({memory}; null: "
            f"/dev/shm), and two levels in one place are no two levels: set one of them to another folder, or set {NODE}: 0"
        )


def _same_folder(one: Path, other: Path) -> bool:
    """Also where one is a link to the other, or the same folder mounted twice."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False  # one of them is still to be made


def _check_steps(plan: Plan) -> None:
    steps = plan.cell.epochs * plan.steps_per_epoch
    if plan.training.warmup_steps >= steps:
        raise LaunchError(
            f"training.warmup_steps is {plan.training.warmup_steps}, and the run has {steps} steps in all: none is left "
            "to time; lower it, or train longer"
        )


def _compare(need: str, needed: int, available: int | None, have: str) -> None:
    if available is not None and needed > available:
        raise LaunchError(f"{need} {_in_words(needed)}, but {_in_words(available)} {have}")


def _in_words(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 / 10 else f"{size / 1e6:.2g} MB"


def _check_folders(plan: Plan) -> None:
    """Raises LaunchError where a run cannot write to its folder, or to that of its checkpoints."""
    _check_writable(plan.run_folder, "have the study in another folder")
    if isinstance(plan.checkpoint_folder, ObjectPath):
        _check_objects(plan.checkpoint_folder)
        return
    _check_writable(plan.checkpoint_folder, f"set {SETTINGS[SHARED]} to another folder")


def _check_objects(folder: ObjectPath) -> None:
    """Put an object and remove it. Raises LaunchError."""
    try:
        (folder / TRIAL).write(b"x")
        folder.remove(TRIAL)
    except CheckpointError as error:
        raise LaunchError(str(error)) from error


def _check_writable(folder: Path, remedy: str) -> None:
    """Make the folder where it is missing, and write a file there that has no name. Raises LaunchError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        # Not the path of the error: it is that of a file which is gone.
        why = OSError(error.errno, cause(error))
        raise LaunchError(f"{folder} cannot be written: {blame(why, folder, remedy)}") from error
