"""The table `machine`: which runs others have disturbed, and what the table `overhead` says of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from counted import BEGIN, during
from in_process import interrupt
from run_folders import FakeRun, cell

from ckptbench.analysis.collect.machine import machine
from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.overhead import overhead
from ckptbench.launch.run import Execution, run_cell
from ckptbench.run.events import Counted
from ckptbench.run.layout import LAUNCHER_TRACE
from ckptbench.run.plan import Plan
from ckptbench.run.trace import whole_events


def only_row(folder: Path, counted: tuple[Counted, ...]) -> dict[str, Any]:
    (row,) = collect([FakeRun(cell=cell(), counted=counted).write(folder)])["machine"].to_dict(
        "records"
    )
    return {str(name): value for name, value in row.items()}


def test_a_run_that_had_the_machine_to_itself_is_not_disturbed(tmp_path: Path) -> None:
    row = only_row(tmp_path, during(busy=150.0, own=145.0, kernel=3.0, stolen=1.0))
    assert row["seconds"] == 100.0
    shares = [row[name] for name in ("busy", "own", "kernel", "others", "stolen")]
    assert shares == pytest.approx([0.75, 0.725, 0.015, 0.01, 0.005])
    assert (row["disturbed"], row["by"]) == (False, "")


@pytest.mark.parametrize(
    ("used_s", "by"),
    [
        ({"busy": 150, "own": 144, "kernel": 0, "stolen": 0}, "other programs used 3.0% of the CPU time"),
        ({"busy": 150, "own": 150, "kernel": 0, "stolen": 3}, "the host took 1.5% of the CPU time"),
        ({"busy": 9, "own": 2, "kernel": 1, "stolen": 4}, "the host took 2.0% of the CPU time and other programs used 3.0% of the CPU time"),
    ],
)  # fmt: skip
def test_a_disturbed_run_says_by_what(tmp_path: Path, used_s: dict[str, float], by: str) -> None:
    row = only_row(tmp_path, during(**used_s))
    assert (row["disturbed"], row["by"]) == (True, by)


def test_on_several_nodes_only_what_the_host_took_is_known(tmp_path: Path) -> None:
    begin = dataclasses.replace(BEGIN, own_s=None)
    row = only_row(tmp_path, during(begin=begin, busy=200.0, stolen=0.0))
    assert math.isnan(row["others"])
    assert row["disturbed"] is False


def test_a_run_of_an_earlier_version_has_a_row_that_knows_nothing(tmp_path: Path) -> None:
    row = only_row(tmp_path, ())
    assert math.isnan(row["seconds"])
    assert pd.isna(row["disturbed"])
    assert row["by"] == ""


def test_counters_that_went_back_are_unknown(tmp_path: Path) -> None:
    row = only_row(tmp_path, during(busy=100.0, own=100.0, stolen=-2.0))
    assert math.isnan(row["stolen"])
    row = only_row(tmp_path / "more", during(busy=-1.0, stolen=-2.0))
    assert pd.isna(row["disturbed"])


def test_attempts_are_added_up_and_one_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    second = dataclasses.replace(BEGIN, attempt=2, at_ns=10**15)
    third = dataclasses.replace(BEGIN, attempt=3, at_ns=10)
    counted = (*during(busy=10, own=10), second, *during(300.0, begin=third, busy=30, own=10))
    row = only_row(tmp_path, counted)
    assert row["seconds"] == 400.0
    assert row["others"] == pytest.approx(20 / 800)


def test_the_overhead_names_the_disturbed_runs_of_a_setup(tmp_path: Path) -> None:
    quiet, busy = during(busy=100, own=100), during(busy=100, own=94)
    runs = [
        FakeRun(cell=cell(interval, repeat=repeat), counted=counted)
        for interval, repeat, counted in [
            ("e1", 0, quiet),
            ("never", 0, busy),
            ("e1", 1, busy),
            ("never", 1, ()),
        ]
    ]
    tables = collect([run.write(tmp_path) for run in runs])
    (row,) = overhead(tables).to_dict("records")
    assert row["disturbed"] is True
    assert row["note"] == (
        "disturbed: repeat 1 (other programs used 3.0% of the CPU time), the baseline of repeat 0 "
        "(other programs used 3.0% of the CPU time)"
    )


@pytest.mark.parametrize("busy_one", ["e1", "never", None])
def test_a_setup_is_disturbed_where_its_run_or_its_baseline_was(tmp_path: Path, busy_one: str | None) -> None:  # fmt: skip
    quiet, busy = during(busy=100, own=100), during(busy=100, own=94)
    runs = [
        FakeRun(cell=cell(interval), counted=busy if interval == busy_one else quiet)
        for interval in ("e1", "never")
    ]
    (disturbed,) = overhead(collect([run.write(tmp_path) for run in runs]))["disturbed"]
    assert disturbed == (busy_one is not None)


def test_the_launcher_counts_around_every_attempt(
    make_plan: Callable[..., Plan], execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    resume = dataclasses.replace(execution, resume=True)
    interrupt(plan, resume, monkeypatch, steps=6)
    run_cell(plan, resume)
    counted = [
        event
        for event in whole_events(plan.run_folder / LAUNCHER_TRACE)
        if isinstance(event, Counted)
    ]
    assert [(each.attempt, each.when) for each in counted] == [
        (1, "begin"),
        (2, "begin"),
        (2, "end"),
    ]
    assert counted[-1].busy_s >= counted[0].busy_s > 0
    assert counted[-1].own_s is not None
    row = machine([Run.read(plan.run_folder)]).iloc[0]
    assert row["seconds"] > 0
