"""What the clusters have in common: a folder, daemons, and the variables of a client."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from tests.cluster.commands import ClusterError
from tests.cluster.processes import CLEAN_ENVIRONMENT, Daemons, processes_with

INSTALL = "sudo tests/cluster/install.sh"
LONGEST_FOLDER = 80
"""The path of a Unix socket in the folder has room for 107 characters."""


class Cluster(ABC):
    """A scheduler whose files are all in one folder, and which ends with all that it started."""

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    controller: ClassVar[str]
    """The daemon that takes and cancels jobs."""
    job_variable: ClassVar[str]
    """What only the processes of a job have in their environment."""
    job_guard: ClassVar[str]
    """The scheduler's own program that watches over one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons = Daemons(folder)

    @classmethod
    def by_hand(cls) -> Cluster:
        """The one that `python -m tests.cluster up` starts, running or not."""
        return cls(Path(tempfile.gettempdir()) / f"ckptbench-cluster-{os.getuid()}" / cls.name)

    @classmethod
    def obstacle(cls) -> str:
        """Why it cannot be started here, and the remedy; empty where it can."""
        path = CLEAN_ENVIRONMENT["PATH"]
        missing = [program for program in cls.programs if not shutil.which(program, path=path)]
        if missing:
            return f"{', '.join(missing)} not installed: run {INSTALL}"
        return "" if os.geteuid() == 0 else "its daemons need root: run as root"

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """What a client of this cluster needs."""

    @abstractmethod
    def healthy(self) -> bool:
        """Whether it runs and takes jobs."""

    def start(self) -> None:
        """Start it and wait until it takes jobs; where that fails, nothing is left running."""
        if obstacle := self.obstacle():
            raise ClusterError(f"{self.name}: {obstacle}")
        if len(str(self.folder)) > LONGEST_FOLDER:
            raise ClusterError(f"{self.folder}: too long for a socket: set TMPDIR to a short path")
        self.stop()
        (self.folder / "log").mkdir(parents=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End its jobs, its daemons and what they left, and delete the folder."""
        if any(process.name == self.controller for process in self.daemons.running()):
            self._cancel_jobs()
        self.daemons.stop()
        if self._configured():
            self._end_leftovers()
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def _configured(self) -> bool:
        """Whether `environment` can be asked for."""

    @abstractmethod
    def _start(self) -> None:
        """Write the configuration and start the daemons, each when the one before is ready."""

    @abstractmethod
    def _cancel_jobs(self) -> None:
        """Cancel all jobs and wait a while until they have ended."""

    def _end_leftovers(self) -> None:
        for process in processes_with({**self.environment(), self.job_variable: None}):
            process.end(grace_s=1)
        for process in processes_with(self.environment()):
            if process.name == self.job_guard:
                process.end(grace_s=1)


@contextmanager
def client_of(cluster: Cluster) -> Iterator[None]:
    """This process and what it starts are clients of the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment().items():
            patch.setenv(name, value)
        yield
