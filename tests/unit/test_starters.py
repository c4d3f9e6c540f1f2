"""Ranks that a scheduler's program starts on another host: they get their environment, and nobody else does.

The programs are stand-ins that start on this host: as rsh does (`qrsh`), and word by word (`pbs_tmrsh`).
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from ckptbench.common.errors import LaunchError
from ckptbench.launch.allocation import Allocation, Scheduler
from ckptbench.launch.limits import Limits
from ckptbench.launch.ranks import run_ranks
from ckptbench.launch.starters import HANDED, Program

PROGRAMS = {
    "qrsh": '[ "$1 $2" = "-nostdin -inherit" ] || exit 9\nshift 3\nexec env -i PATH="$PATH" sh -c "$*"',
    "pbs_tmrsh": 'shift\nexec env -i PATH="$PATH" "$@"',
}
RANK = """
import json, os, pathlib, sys
from ckptbench.run.control.joining import join_ranks
place, link = join_ranks(accelerator="cpu")
arguments = b"".join(path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists())
started_with = pathlib.Path("/proc/self/environ").read_bytes()
token = os.environ["CKPTBENCH_TOKEN"].encode()
found = {"odd": os.environ["ODD"], "shown": token in arguments, "marked": token in started_with}
pathlib.Path(sys.argv[1], f"found-{place.rank}.json").write_text(json.dumps(found))
link.close()
"""
ODD = "a 'b' \"c\" $HOME `id` \\ !\n;d"


@pytest.fixture
def schedulers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the programs, the first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def start(folder: Path, scheduler: Scheduler) -> None:
    """Two ranks on a host that is taken for another one."""
    program = Program(
        command=[sys.executable, "-c", RANK, str(folder)],
        logs=folder / "logs of it",
        variables={"ODD": ODD},
    )
    allocation = Allocation(
        scheduler=scheduler, job_id="7", nodes=(socket.gethostname(),), here=None
    )
    run_ranks(program, 2, allocation, Limits(), threads=1)


@pytest.mark.parametrize("scheduler", ["gridengine", "pbs"])
def test_a_rank_elsewhere_takes_its_environment_from_a_file_and_shows_it_to_nobody(
    tmp_path: Path, schedulers: Path, scheduler: Scheduler
) -> None:
    (tmp_path / "logs of it").mkdir()
    (tmp_path / "logs of it" / HANDED.replace("*", "0-of-a-killed-launcher")).touch()
    start(tmp_path, scheduler)
    found = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(2)]
    assert found == 2 * [{"odd": ODD, "shown": False, "marked": True}]
    assert not list((tmp_path / "logs of it").glob(HANDED))


@pytest.mark.parametrize("program", ['ls -l "$5" >&2; exit 1', None])
def test_a_file_that_no_rank_has_taken_is_for_this_user_alone_and_is_removed(
    tmp_path: Path, schedulers: Path, program: str | None
) -> None:
    starter = schedulers / "pbs_tmrsh"
    if program:
        starter.write_text(f"#!/bin/sh\n{program}\n")
    else:
        starter.unlink()
    with pytest.raises(LaunchError, match=r"-rw------- " if program else "cannot be started"):
        start(tmp_path, "pbs")
    assert not list((tmp_path / "logs of it").glob(HANDED))
