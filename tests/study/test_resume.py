"""`--resume`: after SIGKILL at any moment a run goes on from its newest complete checkpoint, bit for bit.

Attempts whose launcher is killed start real processes, for the processes that start and end are what is tested. All
others are forked from warm servers: their bits must be the same.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_run
from checkout import COLD, ROOT, ranks_of, wait_for
from selection import FULL
from warm.environments import warm_environments

from ckptbench.common.files import read_json
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.registry import FRAMEWORKS
from ckptbench.run.layout import trace_path

Digests = list[dict[str, str]]
HISTORIES = [("kill", "stop"), *([("kill",) * 6, ("stop", "stop")] if FULL else [])]
"""How the attempts before the last one end: by a SIGKILL of the launcher, or by a SIGTERM to it."""
EPOCHS = 8 if FULL else 4
KILLED = FRAMEWORKS if FULL else ("pytorch", "chainer")
"""One whose ranks the launcher starts, and one whose ranks an mpiexec starts. Single ranks are killed with every framework: test_determinism.py."""


def cell_of(framework: str) -> Cell:
    return small_run.cell_of(framework, epochs=EPOCHS, interval="s5", deterministic=True)


def command(cell: Cell, digits: Path, runs: Path, environments: Path) -> list[str]:
    return [
        sys.executable, "-m", "ckptbench.workflow", "train-cell", "--resume",
        "--cell", json.dumps(cell.to_json()),
        "--training", json.dumps(dataclasses.asdict(small_run.TRAINING)),
        "--dataset", str(digits), "--runs", str(runs),
        "--environment", str(environments / cell.environment), "--lock", f"envs/{cell.environment}.txt",
    ]  # fmt: skip


def train(cell: Cell, digits: Path, runs: Path, environments: Path) -> None:
    done = subprocess.run(
        command(cell, digits, runs, environments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def start(cell: Cell, digits: Path, runs: Path, environments: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(cell, digits, runs, environments),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def train_and_kill(cell: Cell, digits: Path, runs: Path, *, versions: int, delay: float) -> None:
    """SIGKILL the launcher, and with it every rank, `delay` s after the version number `versions` began."""
    launcher = start(cell, digits, runs, COLD)
    checkpoints = runs / cell.id / "checkpoints"

    def begun() -> bool:
        names = (
            [path.name for path in checkpoints.glob("version-*")] if checkpoints.exists() else []
        )
        return any(int(name.split("-")[1].split(".")[0]) >= 5 * versions for name in names)

    wait_for(lambda: begun() or launcher.poll() is not None, f"version {versions}")
    time.sleep(delay)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    wait_for(lambda: not ranks_of(runs), "the ranks to end")


def train_and_stop(cell: Cell, digits: Path, runs: Path, *, steps: int) -> None:
    """SIGTERM to the launcher when its ranks have done about so many steps more than the attempts before it."""
    checkpoints = runs / cell.id / "checkpoints"
    before = newest_step(checkpoints)
    launcher = start(cell, digits, runs, warm_environments())
    wait_for(
        lambda: newest_step(checkpoints) >= before + steps or launcher.poll() is not None,
        "training",
    )
    launcher.send_signal(signal.SIGTERM)
    launcher.wait(600)
    assert not ranks_of(runs)


def newest_step(checkpoints: Path) -> int:
    names = [path.name for path in checkpoints.glob("version-????????")]
    return max((int(name.split("-")[1]) for name in names), default=0)


def final_digests(cell: Cell, runs: Path) -> Digests:
    found = []
    for rank in range(cell.ranks):
        lines = trace_path(runs / cell.id, rank).read_text().splitlines()
        events = [json.loads(line) for line in lines]
        found.append([event["tensors"] for event in events if event["event"] == "digest"][-1])
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Callable[[Cell], Digests]:
    """The final digests of a run of the cell that nothing disturbed, trained when it is first asked for."""

    @functools.cache
    def digests(cell: Cell) -> Digests:
        runs = tmp_path_factory.mktemp("whole")
        train(cell, digits, runs, warm_environments())
        return final_digests(cell, runs)

    return digests


@pytest.mark.parametrize("ends", HISTORIES, ids="-".join)
@pytest.mark.parametrize("framework", KILLED)
def test_an_interrupted_run_goes_on_and_ends_with_the_bits_of_one_that_was_not(
    tmp_path: Path,
    digits: Path,
    whole: Callable[[Cell], Digests],
    framework: str,
    ends: tuple[str, ...],
) -> None:
    """Killed at any moment, the middle of a write included; tests/study/test_determinism.py kills single ranks.

    Stopped, both ranks end after one and the same step, wherever each of them is when they are told.
    """
    cell = cell_of(framework)
    random = np.random.default_rng(2)
    manifest = tmp_path / cell.id / "manifest.json"
    for attempt, end in enumerate(ends, start=1):
        if end == "kill":
            delay = random.uniform(0, 0.02)
            train_and_kill(cell, digits, tmp_path, versions=5 * attempt - 2, delay=delay)
            while (
                attempt == 1 and manifest.exists() and read_json(manifest)["status"] == "complete"
            ):
                # The run was over before this process saw its third version: so slow can a machine be.
                shutil.rmtree(tmp_path / cell.id)
                train_and_kill(cell, digits, tmp_path, versions=3, delay=delay)
            continue
        train_and_stop(cell, digits, tmp_path, steps=5)
        stopped = read_json(manifest)
        assert stopped["status"] == "stopped", stopped["error"]
        assert stopped["attempts"] == attempt
    train(cell, digits, tmp_path, warm_environments())
    assert read_json(manifest)["status"] == "complete"
    interrupted = read_json(manifest)["attempts"] - 1
    assert interrupted >= ends.count("stop") + ("kill" in ends), "no attempt was killed in training"
    assert final_digests(cell, tmp_path) == whole(cell)
