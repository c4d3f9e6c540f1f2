"""A rank that raises an exception in the middle of training, under the launcher and the rank's own program."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from small_run import TRAINING, cell_of
from warm.environments import warm_environments

from ckptbench.errors import LaunchError
from ckptbench.launch.allocation import read_allocation
from ckptbench.launch.ranks import Program, run_ranks
from ckptbench.launch.watch import Limits
from ckptbench.matrix.catalogue import FRAMEWORKS
from ckptbench.runs.plan import Plan

PROGRAM = Path(__file__).with_name("raising_rank.py")
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
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_rank_waits_for_one_that_raised_and_the_run_ends_with_its_error(
    tmp_path: Path, digits: Path, framework: str
) -> None:
    plan = plan_of(framework, digits, tmp_path / "run")
    python = warm_environments() / framework / "bin" / "python"
    speaks_mpi = FRAMEWORKS[framework].launcher == "mpiexec"
    program = Program(
        command=[str(python), str(PROGRAM), str(plan.write())],
        logs=tmp_path / "logs",
        mpiexec=python.parent / "mpiexec" if speaks_mpi else None,
    )
    began = time.monotonic()
    with pytest.raises(LaunchError) as failed:
        run_ranks(program, 2, read_allocation({}), Limits(timeout_seconds=BOUND_SECONDS))
    assert time.monotonic() - began < BOUND_SECONDS
    # PyTorch names the rank once more.
    assert re.search(rf"\[rank-1\] (\[rank1\]: )?{MESSAGE}", str(failed.value))
