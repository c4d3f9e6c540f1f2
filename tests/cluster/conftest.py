"""Real schedulers for tests: one brought up by hand is used and left; else one for the session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.gridengine import GridEngine
from tests.cluster.slurm import Slurm


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


@contextmanager
def client_of(cluster: Cluster) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment().items():
            patch.setenv(name, value)
        yield
