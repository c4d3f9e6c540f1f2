"""Real schedulers for tests: one brought up by hand is used and left; else one for the session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import pbs as pbs_of_tests
from tests.cluster.cluster import Cluster, client_of
from tests.cluster.gridengine import GridEngine
from tests.cluster.pbs import Pbs
from tests.cluster.slurm import Slurm


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests with PBS where no built one is named: no package of Debian has it."""
    if os.environ.get(pbs_of_tests.VARIABLE):
        return
    left_out = [item for item in items if needs_pbs(item)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def needs_pbs(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    chosen = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = ("on_pbs", "pbs_client", "abci", "pbs", Pbs)
    return "pbs" in item.fixturenames or any(each in named for each in chosen)


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    named = os.environ.get(pbs_of_tests.VARIABLE)
    return f"PBS: {named or f'left out, for {pbs_of_tests.VARIABLE} names no built OpenPBS'}"


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """A Slurm of three nodes; the tests are its clients from here on."""
    with running(Slurm) as cluster, client_of(cluster):
        yield cluster


@pytest.fixture(scope="session")
def gridengine() -> Iterator[Cluster]:
    """A Grid Engine cell of one host; the tests are its clients from here on."""
    with running(GridEngine) as cluster, client_of(cluster):
        yield cluster


@pytest.fixture(scope="session")
def pbs() -> Iterator[Cluster]:
    """A PBS of two hosts. Its commands have the names of Grid Engine's: who uses it is its client
    only as long as `client_of` says so."""
    with running(Pbs) as cluster:
        yield cluster


@pytest.fixture
def pbs_client(pbs: Cluster) -> Iterator[Cluster]:
    """The test is a client of PBS."""
    with client_of(pbs):
        yield pbs


@pytest.fixture
def fresh() -> Iterator[Callable[[type[Cluster]], Cluster]]:
    """Makes clusters that are the test's own and not started; they end with it."""
    made: list[Cluster] = []

    def make(kind: type[Cluster]) -> Cluster:
        made.append(new(kind))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()


@contextmanager
def running(kind: type[Cluster]) -> Iterator[Cluster]:
    by_hand = kind.by_hand()
    if by_hand.healthy():
        yield by_hand
        return
    own = new(kind)
    try:
        own.start()
        yield own
    finally:
        own.stop()


def new(kind: type[Cluster]) -> Cluster:
    if obstacle := kind.obstacle():
        pytest.skip(f"left out: what needs a real {kind.name}: {obstacle}")
    # Not pytest's own folder: its path is too long for a Unix socket.
    return kind(Path(tempfile.mkdtemp(prefix=f"ckptbench-{kind.name}-")))
