"""The wall clock of launcher, ranks and injectors is set an hour back and forth while a struck run goes on, again and again."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from small_run import TRAINING, cell_of

from ckptbench.analysis.collect.runs import collect
from ckptbench.matrix.plugin_spec import PluginSpec

SOURCE = Path(__file__).with_name("wall_clock.c")
SET_BY_S = (0, -3600, 3600)
EVERY_S = 0.7
FAILURES = [
    {"step": 40, "rank": 1, "kind": "kill"},
    {"second": 1.0, "rank": 0, "kind": "hang", "lasts_s": 0.5},
]
HALF_AN_HOUR_S = 1800
"""No run of this size takes as long, and every wrong clock makes it longer."""


@pytest.fixture
def wall_clock(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of processes whose wall clock is set all the time."""
    library, by = tmp_path / "wall_clock.so", tmp_path / "set-by"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    over = threading.Event()

    def set_it() -> None:
        for seconds in itertools.cycle(SET_BY_S):
            draft = by.with_suffix(".draft")
            draft.write_text(str(seconds))
            draft.replace(by)
            if over.wait(EVERY_S):
                return

    setter = threading.Thread(target=set_it)
    setter.start()
    yield {**os.environ, "LD_PRELOAD": str(library), "CKPTBENCH_TEST_CLOCK": str(by)}
    over.set()
    setter.join()


@pytest.mark.frameworks("pytorch")
def test_no_time_of_a_struck_run_changes(
    digits: Path, tmp_path: Path, wall_clock: dict[str, str]
) -> None:
    cell = dataclasses.replace(
        cell_of("pytorch", epochs=4, interval="e1", deterministic=False),
        faults=PluginSpec("listed", (("name", "two"),)),
    )
    command = [
        sys.executable, "scripts/train_cell.py", "--cell", json.dumps(cell.to_json()),
        "--training", json.dumps(dataclasses.asdict(TRAINING)), "--dataset", str(digits),
        "--environment", ".environments/pytorch", "--lock", "envs/pytorch.txt",
        "--runs", str(tmp_path / "runs"), "--failures", json.dumps(FAILURES),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env=wall_clock, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    tables = collect([tmp_path / "runs" / cell.id])
    (run,) = tables["runs"].to_dict("records")
    assert 0 < run["wall_s"] < run["duration_s"] < HALF_AN_HOUR_S
    failures = tables["failures"]
    assert set(failures["kind"]) == {"kill", "hang"}
    assert failures["second"].between(0, run["wall_s"]).all()
    parts = failures[[name for name in failures if name.endswith("_s") and name != "rest_s"]]
    assert ((parts >= 0) & (parts < run["wall_s"])).all(axis=None)
    assert failures["total_s"].sum() < run["wall_s"]
    phases = tables["phases"]
    assert phases["duration_s"].between(0, run["duration_s"]).all()
