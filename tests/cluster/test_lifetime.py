"""A cluster ends with all that it started, and says why it did not start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.commands import ClusterError, check, poll
from tests.cluster.gridengine import GridEngine
from tests.cluster.pbs import Pbs
from tests.cluster.processes import Daemons, processes_with, start_ticks
from tests.cluster.slurm import Slurm

Fresh = Callable[[type[Cluster]], Cluster]

SUBMIT = {
    "slurm": ["sbatch", "--output=/dev/null"],
    "gridengine": ["qsub", "-o", "/dev/null", "-j", "y"],
    "pbs": ["qsub", "-o", "/dev/null", "-j", "oe"],
}


@pytest.mark.parametrize("kind", [Slurm, GridEngine, Pbs])
def test_stopping_ends_even_the_processes_that_left_their_job(
    kind: type[Cluster], fresh: Fresh, tmp_path: Path
) -> None:
    cluster = fresh(kind)
    cluster.start()
    environment = cluster.environment()
    daemons = cluster.daemons.running()
    strays = tmp_path / "stray"
    job = tmp_path / "job.sh"
    job.write_text(f"#!/bin/sh\nsetsid sleep 1000 &\necho $! >{strays}\nwait\n")
    check([*SUBMIT[cluster.name], str(job)], environment)
    assert poll(lambda: strays.exists() and strays.read_text().endswith("\n"))

    cluster.stop()

    assert start_ticks(int(strays.read_text())) is None
    assert [process.name for process in daemons if process.alive()] == []
    assert list(processes_with(environment)) == []
    assert not cluster.folder.exists()


def test_a_start_that_fails_shows_the_log_and_leaves_nothing(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cluster.slurm.slurmdbd_conf", lambda *_: "Nonsense=1\n")
    cluster = fresh(Slurm)
    with pytest.raises(ClusterError, match=r"slurmdbd ended at once(?s:.*)Nonsense"):
        cluster.start()
    assert list(processes_with(cluster.environment())) == []
    assert not cluster.folder.exists()


def test_a_daemon_that_is_never_ready_is_an_error_that_says_what_is_missing(
    tmp_path: Path,
) -> None:
    daemons = Daemons(tmp_path)
    (tmp_path / "log").mkdir()
    process = daemons.start("sleeper", ["sh", "-c", "echo tired; exec sleep 1000"], {})
    assert poll(lambda: "tired" in daemons.last_lines("sleeper"))
    with pytest.raises(ClusterError, match=r"no nodes\n(?s:.*)tired"):
        daemons.wait_for(process, lambda: "no nodes", timeout_s=0.5)
    daemons.stop()
    assert not process.alive()


def test_a_cluster_without_its_programs_names_them_and_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slurm, "programs", ("sh", "slurmd-of-nowhere"))
    with pytest.raises(ClusterError, match=r"slurmd-of-nowhere .*run sudo .*install\.sh"):
        Slurm(tmp_path / "slurm").start()
