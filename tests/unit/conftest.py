"""A tiny prepared dataset, a study's settings over the NumPy framework, and servers for ranks to connect to."""

from __future__ import annotations

import dataclasses
import functools
import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from control_links import MakeServer
from numpy_framework import ALONE, Unasked
from stored_versions import Busy
from struck_plans import FAILURES

from ckptbench.common.clock import boot_id
from ckptbench.common.host import source_revision
from ckptbench.config.inputs import sizes_of
from ckptbench.inputs.datasets.dataset import Dataset, dataset_sha256
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.launch.run import Execution
from ckptbench.launch.series import AttemptSeries
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.training import Training
from ckptbench.run.control import variables
from ckptbench.run.control.ranks import assign_ranks
from ckptbench.run.control.server import ControlServer
from ckptbench.run.plan import Plan
from ckptbench.training.rank import run_rank

HANGS_SECONDS = 30
SMALL = {
    "height": 4,
    "width": 4,
    "channels": 1,
    "classes": 3,
    "train_samples": 64,
    "test_samples": 16,
}


def pytest_collection_finish() -> None:
    """What is loaded by now stays to the end: the garbage collector need not search all modules and tests again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared synthetic dataset: 64 training and 16 test images of 4 x 4 x 1 in 3 classes."""
    folder = tmp_path_factory.mktemp("dataset") / "synthetic"
    prepare("synthetic", folder, SMALL)
    return folder


@pytest.fixture
def make_plan(dataset: Path, tmp_path: Path) -> Callable[..., Plan]:
    """A plan of 3 epochs of 4 steps in `tmp_path/<name>`, with a checkpoint every `interval`."""

    def make(interval: str = "e1", *, name: str = "run", epochs: int = 3, keep: int = 2) -> Plan:
        cell = Cell(
            framework="numpy",
            model="linear",
            dataset="synthetic",
            ranks=1,
            batch_size=16,
            epochs=epochs,
            format="none" if interval == "never" else "npz",
            interval=Interval.parse(interval),
        )
        training = Training(
            seed=1,
            learning_rate=0.1,
            momentum=0.9,
            weight_decay=0,
            steps_per_epoch=None,
            test_samples=None,
            warmup_steps=1,
            keep_during_run=keep,
        )
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Plan(
            cell=cell,
            training=training,
            dataset_folder=dataset,
            run_folder=folder,
            checkpoint_folder=folder / "checkpoints",
            sizes=sizes_of("linear", Dataset.open(dataset)),
            dataset_sha256=dataset_sha256(dataset),
            lock_sha256="of a lock",
            run_id="of a run",
        )

    return make


@pytest.fixture
def struck_plan(make_plan: Callable[..., Plan]) -> Plan:
    """A run of three ranks with the failures of `struck_plans`."""
    plan = make_plan("never")
    faults = PluginSpec("listed", (("name", "x"),))
    cell = dataclasses.replace(plan.cell, ranks=3, faults=faults)
    return dataclasses.replace(plan, cell=cell, listed=FAILURES, failures=FAILURES)


@pytest.fixture
def execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Execution:
    """Ranks run inside this process; see `in_process.py`."""
    monkeypatch.setenv(variables.LAUNCHED, f"{boot_id()} 1 1")

    def launch(attempts: AttemptSeries) -> None:
        plan = attempts.plan
        run_rank(plan, ALONE, Unasked(), started_ns=2)

    monkeypatch.setattr(AttemptSeries, "launch", launch)
    monkeypatch.setattr("ckptbench.launch.manifest.source_revision", _revision)
    return Execution(python=Path("python"), lock="numpy.txt", logs=tmp_path / "logs")


_revision = functools.cache(source_revision)
"""Git is asked once in place of once a run. What it says of other checkouts is `test_manifest`'s."""


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    """Servers of ranks on nodes with these names, which are closed at the end."""
    servers = []

    def make(*nodes: str) -> ControlServer:
        server = ControlServer(assign_ranks(list(nodes)), host="127.0.0.1")
        server.serve()
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def busy() -> Iterator[Busy]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Busy(monkeypatch)


@pytest.fixture
def never_hangs() -> Iterator[None]:
    """A read that waits for ever ends its test."""

    def give_up(*_: object) -> NoReturn:
        raise AssertionError(f"still waiting after {HANGS_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANGS_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
