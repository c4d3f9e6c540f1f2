"""The recovery torchft for real: a rank is killed, started again, and trains with the other one to the end."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT, ranks_of
from small_run import TRAINING, cell_of

from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.layout import trace_path
from ckptbench.run.trace import Trace, read_trace

ENVIRONMENT = ROOT / ".environments" / "pytorch_torchft"
FAILURE = {"step": 5, "rank": 1}
EPOCHS = 20
"""The survivor needs several times as long for them as the other rank to be there again: both count on the same cores."""


@pytest.fixture(scope="module")
def traces(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    runs = tmp_path_factory.mktemp("torchft")
    cell = dataclasses.replace(
        cell_of("pytorch", epochs=EPOCHS, interval="s30", deterministic=False),
        faults=PluginSpec("listed", (("name", "one"),)),
        recovery=PluginSpec("torchft"),
    )
    command = [
        sys.executable, "-m", "ckptbench.workflow", "train-cell", "--cell", json.dumps(cell.to_json()),
        "--training", json.dumps(dataclasses.asdict(TRAINING)), "--dataset", str(digits),
        "--environment", str(ENVIRONMENT), "--lock", "envs/pytorch_torchft.txt",
        "--runs", str(runs), "--failures", json.dumps([FAILURE]),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ranks_of(runs) == []
    assert not lighthouses(), "the lighthouse ends with the run"
    (folder,) = runs.iterdir()
    return [read_trace(trace_path(folder, rank)) for rank in range(2)]


def lighthouses() -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [
        line
        for line in listed.stdout.splitlines()
        if line.startswith(str(ENVIRONMENT)) and "ckptbench.failures.recovery.lighthouse" in line
    ]


@pytest.mark.frameworks("pytorch_torchft")
def test_a_lost_rank_takes_the_state_of_the_other_one_and_both_end_together(
    traces: list[Trace],
) -> None:
    """That both end with the same parameters is checked when the run is sealed."""
    survivor, victim = traces
    assert [world.ranks for world in survivor.memberships] == [[0], [0, 1]]
    assert [world.ranks for world in victim.memberships] == [[0, 1]]
    assert (len(survivor.starts), len(victim.starts)) == (1, 2)
    alone, together = survivor.regroups
    (joined,) = victim.regroups
    assert (alone.step, alone.bytes) == (5, 0)
    assert joined.step == together.step > alone.step
    assert joined.reached == 0
    assert joined.bytes > 0
    assert survivor.ended
    assert victim.ended


@pytest.mark.frameworks("pytorch_torchft")
def test_no_step_is_left_out(traces: list[Trace]) -> None:
    steps = EPOCHS * 30
    assert traces[0].steps().index.tolist() == list(range(steps))


LOOPBACK = "0100007F"
"""127.0.0.1 as /proc/net/tcp has it."""


@pytest.mark.frameworks("pytorch_torchft")
def test_a_rank_listens_on_the_loopback_interface_alone_and_runs_no_code_of_a_state(
    tmp_path: Path,
) -> None:
    """torchft by itself listens on all interfaces, and unpickles what any address that it is told gives."""
    here = Path(__file__)
    done = subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), str(here.with_name("torchft_alone.py")), str(tmp_path / "marker")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["listens"]) == {LOOPBACK}
    assert len(found["listens"]) >= 4, "store, manager, transport and lighthouse"
    assert found["got"] == [0, 1, 2, 3, 4]
    unpickled, elsewhere, of_a_file = found["refused"]
    assert "unsupported GLOBAL posix.mkdir" in unpickled
    assert "http://192.0.2.1:80/0/full, which is not on this host" in elsewhere
    assert "file:///etc/0/full, which is not on this host" in of_a_file
    assert not found["ran"]
    assert found["live"], "torchft's own transport would not run it either"
