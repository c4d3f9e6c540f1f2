"""A rank that raises an exception in training or is killed before it, under the launcher and the rank's own program."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import COLD
from small_run import TRAINING, cell_of
from warm.environments import warm_environments

from ckptbench.common.errors import LaunchError
from ckptbench.common.shared_memory import MPICH, SEGMENTS
from ckptbench.launch.allocation import read_allocation
from ckptbench.launch.limits import Limits
from ckptbench.launch.ranks import run_ranks
from ckptbench.launch.starters import Program
from ckptbench.matrix.registry import FRAMEWORKS, environment_of
from ckptbench.run.plan import Plan

RAISING = Path(__file__).with_name("raising_rank.py")
JOINING = Path(__file__).with_name("joining_rank.py")
MESSAGE = "ArithmeticError: raised on purpose in the third step"
BOUND_SECONDS = 600.0
"""Generous: a busy machine takes some seconds. A rank that hangs would train for hours."""


def plan_of(framework: str, digits: Path, folder: Path) -> Plan:
    cell = cell_of(framework, epochs=10_000, interval="e1", deterministic=False)
    folder.mkdir()
    return Plan(
        cell=cell,
        training=TRAINING,
        dataset_folder=digits,
        run_folder=folder,
        checkpoint_folder=folder / "checkpoints",
        run_id="0" * 32,
        dataset_sha256="1" * 64,
        lock_sha256="2" * 64,
    )


def program_of(plan: Plan, environments: Path, script: Path, folder: Path) -> Program:
    framework = plan.cell.framework
    python = environments / environment_of(framework) / "bin" / "python"
    speaks_mpi = FRAMEWORKS[framework].launcher == "mpiexec"
    return Program(
        command=[str(python), str(script), str(plan.write()), str(folder)],
        logs=folder / "logs",
        mpiexec=python.parent / "mpiexec" if speaks_mpi else None,
    )


@pytest.fixture
def left_behind() -> Iterator[Path]:
    """A segment of MPICH's that a run has left long ago, killed together with its launcher while MPI started."""
    path = SEGMENTS / f"{MPICH}shm_ckptbench_{os.getpid()}"
    path.touch()
    os.utime(path, (0, 0))
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_rank_waits_for_one_that_raised_and_the_run_ends_with_its_error(
    tmp_path: Path, digits: Path, framework: str, left_behind: Path
) -> None:
    plan = plan_of(framework, digits, tmp_path / "run")
    program = program_of(plan, warm_environments(), RAISING, tmp_path)
    began = time.monotonic()
    with pytest.raises(LaunchError) as failed:
        run_ranks(program, 2, read_allocation({}), Limits(timeout_seconds=BOUND_SECONDS))
    assert time.monotonic() - began < BOUND_SECONDS
    # PyTorch names the rank once more.
    assert re.search(rf"\[rank-1\] (\[rank1\]: )?{MESSAGE}", str(failed.value))
    # Ranks that use MPICH sweep up what others of it have left. Only they are asked: a run of theirs may be going on
    # beside this one, and would sweep it up as well.
    if framework == "chainer":
        assert not left_behind.exists()


@pytest.mark.frameworks("chainer")
def test_a_rank_that_is_killed_while_mpi_starts_leaves_no_shared_memory(
    tmp_path: Path, digits: Path
) -> None:
    plan = plan_of("chainer", digits, tmp_path / "run")
    program = program_of(plan, COLD, JOINING, tmp_path)
    with pytest.raises(LaunchError):
        run_ranks(program, 2, read_allocation({}), Limits(timeout_seconds=BOUND_SECONDS))
    segments = (tmp_path / "1").read_text().split()
    assert len(segments) == 1
    assert not Path(segments[0]).exists()
