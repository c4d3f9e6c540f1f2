"""An interrupted run folder that was damaged: the next start goes on, starts over or says in one line what to do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import interrupt, last_digest, versions

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_json, write_json
from ckptbench.launch.run import Execution, run_cell
from ckptbench.runs.layout import trace_path
from ckptbench.runs.plan import Plan

MakePlan = Callable[..., Plan]
Spoil = Callable[[Path], object]


@pytest.fixture
def interrupted(make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A run that was ended in its third epoch, with the versions of steps 4 and 8."""
    plan = make_plan("e1")
    interrupt(plan, execution, monkeypatch, steps=9)
    assert versions(plan) == ["version-00000004", "version-00000008"]
    return plan


def resume(plan: Plan, execution: Execution) -> Run:
    run_cell(plan, dataclasses.replace(execution, resume=True))
    return Run.read(plan.run_folder)


def with_changes(**changes: object) -> Spoil:
    def change(path: Path) -> None:
        write_json(path, {**read_json(path), **changes})

    return change


PLANS: list[Spoil] = [
    lambda path: path.write_text("{}"),
    lambda path: path.write_text("{"),
    lambda path: path.write_text("[" * 100_000),
    lambda path: path.unlink(),
    with_changes(more=1),
    with_changes(training={}),
    with_changes(cell={"framework": "pytorch"}),
    with_changes(run_folder=None),
]


@pytest.mark.parametrize("spoil", PLANS)
def test_a_run_goes_on_whatever_its_last_plan_has_become(
    interrupted: Plan, execution: Execution, spoil: Spoil
) -> None:
    spoil(interrupted.run_folder / "plan.json")
    assert resume(interrupted, execution).manifest["attempts"] == 2


@pytest.mark.parametrize("spoil", PLANS[:1] + PLANS[4:])
def test_a_plan_of_another_version_is_named(interrupted: Plan, spoil: Spoil) -> None:
    path = interrupted.run_folder / "plan.json"
    spoil(path)
    with pytest.raises(
        RunFolderError, match=r"plan\.json: no plan of this version .*start the run"
    ):
        Plan.read(path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("{}"),
        lambda path: path.write_text(""),
        lambda path: path.write_text("[" * 100_000),
        with_changes(status=None),
        with_changes(attempts="one"),
        with_changes(host={}),
        with_changes(clock="yesterday"),
        with_changes(run_id=None),
        with_changes(training=[]),
    ],
)
def test_a_run_whose_manifest_was_damaged_starts_over_and_says_so(
    interrupted: Plan, execution: Execution, caplog: pytest.LogCaptureFixture, spoil: Spoil
) -> None:
    spoil(interrupted.run_folder / "manifest.json")
    assert resume(interrupted, execution).manifest["attempts"] == 1
    assert "the earlier attempt cannot be continued: " in caplog.text
    assert "manifest.json: " in caplog.text


def test_a_run_whose_trace_is_gone_starts_over(
    make_plan: MakePlan, interrupted: Plan, execution: Execution, caplog: pytest.LogCaptureFixture
) -> None:
    trace_path(interrupted.run_folder, 0).unlink()
    run = resume(interrupted, execution)
    assert run.manifest["attempts"] == 1
    assert sorted(run.ranks[0].trace.epochs) == [0, 1, 2]
    assert 'trace-0.jsonl has no "epoch" event for epoch 0, which comes before' in caplog.text
    whole = make_plan("e1", name="whole")
    run_cell(whole, execution)
    assert last_digest(interrupted) == last_digest(whole)


def test_a_run_goes_on_from_the_version_up_to_which_its_trace_is_whole(
    make_plan: MakePlan, interrupted: Plan, execution: Execution
) -> None:
    """As after a kill between the commit of an epoch's last checkpoint and the epoch's event."""
    path = trace_path(interrupted.run_folder, 0)
    lines = path.read_text().splitlines()
    kept = [line for line in lines if json.loads(line).get("epoch", 0) == 0]
    path.write_text("\n".join(kept) + "\n")
    run = resume(interrupted, execution)
    assert (run.manifest["attempts"], run.resumed) == (2, True)
    assert sorted(run.ranks[0].trace.epochs) == [0, 1, 2]
    whole = make_plan("e1", name="whole")
    run_cell(whole, execution)
    assert last_digest(interrupted) == last_digest(whole)


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", '{"event":"lunch"}', "[" * 100_000, "\x00"],
    ids=["empty", "cut", "list", "unknown", "nested", "zero"],
)
def test_a_damaged_line_of_a_trace_is_named_by_its_number(
    interrupted: Plan, execution: Execution, line: str
) -> None:
    path = trace_path(interrupted.run_folder, 0)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:4], line, *lines[4:]]) + "\n")
    with pytest.raises(
        RunFolderError, match=r"trace-0\.jsonl:5: not an event: .*; remove .*/run to"
    ):
        resume(interrupted, execution)
    assert versions(interrupted) == ["version-00000004", "version-00000008"]
    run_cell(interrupted, execution)  # without resume it starts over
    assert Run.read(interrupted.run_folder).manifest["attempts"] == 1
