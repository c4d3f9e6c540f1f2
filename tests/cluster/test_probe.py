"""ckptbench-probe before and behind the launchers of clusters: two ranks, one summary, and the exit code of the command. And the study of trainers by it."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.commands import PATIENCE_S, check, poll
from tests.cluster.rank_jobs import CHAINER, ROOT
from tests.cluster.studies import resources
from tests.study.checkout import Checkout
from tests.study.tiny_trainers import add, found

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
        "--value", "interval=10,15", "--baseline", "interval=1000", "--folder", str(tmp_path / "compared"),
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


NAMES = ("limited", "cancelled", "preempted")
STOPPED = """
import json, os, signal, sys, time
from pathlib import Path
from ckptbench_probe import session

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
newest = folder / f"newest-{os.environ['SLURM_PROCID']}.json"
done = begun = json.loads(newest.read_text()) if newest.exists() else 0
stop = []
signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
with session() as s:
    while done < (10_000 if not begun else begun + 2):
        time.sleep(0.5 if done == 6 else 0.02)  # all ranks have the signal by update 8
        done += 1
        s.step(state={"weight": float(done)}, update=done)
        if done % 4 == 0:
            with s.checkpoint(newest):
                newest.with_suffix(".new").write_text(json.dumps(done))
                newest.with_suffix(".new").replace(newest)
            if stop:
                break
if stop:
    (folder / "stopped-at").write_text(json.dumps(done))
"""


def test_slurm_stops_a_job_as_the_pasted_line_says(slurm: object, tmp_path: Path) -> None:
    """By scancel, by the time limit, and by a job that is more urgent."""
    (tmp_path / "train.py").write_text(STOPPED)
    train = [sys.executable, str(tmp_path / "train.py")]
    words = [sys.executable, "-m", "ckptbench_probe.main", "check", "stop", "--signal", "USR1", "--at", "6"]  # fmt: skip
    done = subprocess.run([*words, "--", *SRUN, *train, "{folder}"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "ckptbench-check" / "stop.json").read_text())
    assert (report["resumed_from"], report["lost_updates"]) == (8, 0)

    def submit(name: str, *options: str) -> str:
        script = tmp_path / f"{name}.sh"
        command = shlex.join([*train, str(tmp_path / name)])
        script.write_text(f"#!/bin/sh\n{report['paste']}\nexport SLURM_PROCID=0\nexec {command}\n")
        return check(["sbatch", "--parsable", "--mem=400", f"--chdir={tmp_path}", f"--output={tmp_path}/{name}.txt", *options, str(script)], {}).strip()  # fmt: skip

    submit("limited", "--time=1", "--nodelist=node1")
    cancelled = submit("cancelled", "--time=30", "--nodelist=node1")
    submit("preempted", "--time=30", "--nodelist=node3")
    assert poll(lambda: all((tmp_path / name / "newest-0.json").exists() for name in NAMES))
    check(["scancel", "--batch", "--signal=USR1", cancelled], {})
    urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodelist=node3", "--exclusive"]
    check([*urgent, "--mem=0", "--output=/dev/null", "--wrap=sleep 1"], {})
    for name in NAMES:
        stopped = tmp_path / name / "stopped-at"
        assert poll(stopped.exists), name
        assert poll(lambda at=stopped: bool(at.read_text())), name  # type: ignore[misc]
        assert json.loads((tmp_path / name / "newest-0.json").read_text()) >= json.loads(stopped.read_text())  # fmt: skip


def test_each_check_of_a_trainer_is_a_job_of_slurm(slurm: object, tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "checkout", "slurm", *resources("slurm"))
    for how in ("right", "forgets"):
        add(tmp_path / "trainers", how)
    own = {"folder": str(tmp_path / "trainers"), "checks": ["resume_within"]}
    config = {"environments": {"trainers": {"python": sys.executable}}, "trainers": own}
    (checkout.folder / "mine.yaml").write_text(yaml.safe_dump(config))
    done = checkout.run(study="mine.yaml")
    assert done.returncode == 0, done.stdout
    assert found(checkout.folder) == {("right", "resume_within"): "yes", ("forgets", "resume_within"): "no"}  # fmt: skip
    assert len(re.findall(r"was submitted: slurm job", done.stdout)) == 2
