"""ckptbench-probe before and behind the launchers of clusters: two ranks, one summary, and the exit code of the command."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import PATIENCE_S
from tests.cluster.rank_jobs import CHAINER, ROOT

TRAINING = """
import sys, time
from pathlib import Path
from ckptbench_probe import session

with session() as s:
    for step in range(1, 31):
        time.sleep(0.01)
        s.step()
        if step % 10 == 0:
            with s.checkpoint(f"step-{step}-of-{sys.argv[1]}.bin"):
                Path(f"step-{step}-of-{sys.argv[1]}.bin").write_bytes(b"x" * 4096)
if sys.argv[1] == sys.argv[2]:
    time.sleep(0.5)
    sys.exit(7)
"""
"""The rank that is named ends last, and fails: mpirun ends the others of one that fails."""
PROBE = [sys.executable, "-m", "ckptbench_probe.main", "run", "--folder"]
SRUN = ["srun", "--nodelist=node1,node2", "--nodes=2", "--ntasks-per-node=1", "--mem=500"]
OPEN_MPI = ROOT / ".environments" / "pytorch_ulfm" / "bin" / "mpirun"
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": [str(OPEN_MPI), "--allow-run-as-root", "--oversubscribe", "-n", "2"],
    "PMI_RANK": [str(CHAINER / "mpirun"), "-n", "2"],
}
"""Open MPI and MPICH, by the variable in which each names a rank."""


def ended(folder: Path, *command: str) -> tuple[dict[str, Any], str]:
    """What the command has left and told."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # fmt: skip
    assert done.returncode == 7, done.stderr
    summary: dict[str, Any] = json.loads((folder / "seen" / "summary.json").read_text())
    return summary, done.stderr


def training(folder: Path, rank: str, last: int) -> list[str]:
    """Of one rank, which is named by the variable of its launcher."""
    (folder / "train.py").write_text(TRAINING)
    return ["sh", "-c", f'exec {sys.executable} train.py "${rank}" {last}']


def is_whole(summary: dict[str, Any], told: str) -> None:
    assert (summary["ranks"], summary["updates"], summary["killed"]) == (2, 30, 0)
    assert [one["updates"] for one in summary["checkpoints"]] == [10, 20, 30]
    assert [len(one["paths"]) for one in summary["checkpoints"]] == [2, 2, 2]
    assert summary["checkpoints"][0]["files"] == 2
    assert told.count("training      2 ranks, 30 steps") == 1


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_srun_on_two_nodes_is_measured_as_one_run(
    slurm: object, tmp_path: Path, behind: bool
) -> None:
    probe = [*PROBE, str(tmp_path / "seen"), "--"]
    train = training(tmp_path, "SLURM_PROCID", last=1)
    is_whole(*ended(tmp_path, *([*SRUN, *probe] if behind else [*probe, *SRUN]), *train))


@pytest.mark.parametrize("rank", MPIRUN)
def test_mpirun_is_measured_as_one_run(tmp_path: Path, rank: str) -> None:
    train = training(tmp_path, rank, last=0)
    is_whole(*ended(tmp_path, *PROBE, str(tmp_path / "seen"), "--", *MPIRUN[rank], *train))


COMPARED = """
import os, sys, time
from pathlib import Path
from ckptbench_probe import session

rank, interval, folder = os.environ["SLURM_PROCID"], int(sys.argv[1]), Path(sys.argv[2])
with session() as s:
    for step in range(1, 31):
        time.sleep(0.01)
        s.step()
        if step % interval == 0:
            with s.checkpoint(folder / f"step-{step}-of-{rank}.bin"):
                (folder / f"step-{step}-of-{rank}.bin").write_bytes(b"x" * 4096)
"""


def test_settings_are_compared_on_two_nodes_of_slurm(slurm: object, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COMPARED)
    command = [
        sys.executable, "-m", "ckptbench_probe.main", "compare", "--repeats", "2",
        "--value", "interval=10,15", "--baseline", "interval=1000", "--output", str(tmp_path / "compared"),
        "--", *SRUN, sys.executable, "train.py", "{interval}", "{folder}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    with (tmp_path / "compared" / "compare.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ("value_interval", "ranks", "saves", "bytes")
    assert [[row[name] for name in columns] for row in rows] == [
        ["", "2", "0", ""],
        ["10", "2", "6", "8192"],
        ["15", "2", "4", "8192"],
    ]
