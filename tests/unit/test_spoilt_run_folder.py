"""An interrupted run folder that was damaged: the next start goes on, starts over or says in one line what to do."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import in_job, interrupt, last_digest, versions

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.registry import COLLECTED
from ckptbench.checkpointing.version import open_version
from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_json, write_json
from ckptbench.launch import earlier_traces
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.layout import trace_path
from ckptbench.run.plan import Plan

pytestmark = pytest.mark.usefixtures("never_hangs")

MakePlan = Callable[..., Plan]
Spoil = Callable[[Path], object]


@pytest.fixture
def interrupted(make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A run that was ended in its third epoch, with the versions of steps 4 and 8."""
    plan = make_plan("e1")
    interrupt(plan, execution, monkeypatch, steps=9)
    assert versions(plan) == ["version-00000004", "version-00000008"]
    return plan


_WHOLE: list[dict[str, str]] = []


def whole(make_plan: MakePlan, execution: Execution) -> dict[str, str]:
    """The last digest of the same run without an interruption, which is trained once."""
    if not _WHOLE:
        plan = make_plan("e1", name="whole")
        run_cell(plan, execution)
        _WHOLE.append(last_digest(plan))
    return _WHOLE[0]


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
    with_changes(attempt="2"),
    with_changes(failures=None),
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


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def flip_a_byte(path: Path) -> None:
    """In the name of a field."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"attempts"', b'"attemptr"'))


MANIFESTS: list[Spoil] = [
    lambda path: path.unlink(),
    lambda path: path.write_text("{}"),
    lambda path: path.write_text(""),
    lambda path: path.write_text("[" * 100_000),
    lambda path: path.write_bytes(path.read_bytes()[:100]),
    flip_a_byte,
    replace_by_fifo,
    with_changes(status=None),
    with_changes(attempts="one"),
    with_changes(attempts=True),
    with_changes(host={}),
    with_changes(host=[]),
    with_changes(clock="yesterday"),
    with_changes(run_id=None),
    with_changes(run_id="f" * 32),
    with_changes(training=[]),
    with_changes(training={}),
    with_changes(lock_sha256="another"),
]


@pytest.mark.parametrize("spoil", MANIFESTS)
def test_a_run_whose_manifest_was_damaged_goes_on_from_the_version_that_says_whose_it_is(
    make_plan: MakePlan, interrupted: Plan, execution: Execution, spoil: Spoil
) -> None:
    path = interrupted.run_folder / "manifest.json"
    run_id = read_json(path)["run_id"]
    spoil(path)
    run = resume(interrupted, execution)
    assert (run.manifest["attempts"], run.manifest["run_id"]) == (2, run_id)
    assert run.manifest["started"] < run.manifest["ended"]
    assert run.manifest["duration_s"] > 0
    assert run.steps == len(run.ranks[0].steps.index)
    assert last_digest(interrupted) == whole(make_plan, execution)


def of_another_training(plan: Plan) -> Plan:
    training = dataclasses.replace(plan.training, learning_rate=0.2)
    return dataclasses.replace(plan, training=training)


@pytest.mark.parametrize("damaged", [False, True])
def test_versions_that_cannot_be_continued_though_they_should_are_kept(
    interrupted: Plan, execution: Execution, caplog: pytest.LogCaptureFixture, *, damaged: bool
) -> None:
    before = open_version(interrupted.checkpoint_folder / "version-00000008")
    if damaged:
        flip_a_byte(interrupted.run_folder / "manifest.json")
    run = resume(of_another_training(interrupted), execution)
    assert run.manifest["attempts"] == 1
    kept = interrupted.checkpoint_folder / "kept-1"
    assert f"are kept in {kept}: remove it if nobody needs them" in caplog.text
    assert sorted(path.name for path in kept.iterdir()) == ["version-00000004", "version-00000008"]
    assert open_version(kept / "version-00000008").files == before.files


def test_no_version_is_removed_where_nobody_knows_whether_it_was_to_be_continued(
    interrupted: Plan, execution: Execution
) -> None:
    """Without `resume`; the job may have been requeued."""
    flip_a_byte(interrupted.run_folder / "manifest.json")
    run_cell(interrupted, execution)
    assert Run.read(interrupted.run_folder).manifest["attempts"] == 1
    assert len([*(interrupted.checkpoint_folder / "kept-1").iterdir()]) == 2


def test_a_requeued_job_goes_on_though_the_manifest_was_damaged(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    in_job(monkeypatch, "42")
    interrupt(plan, execution, monkeypatch, steps=9)
    flip_a_byte(plan.run_folder / "manifest.json")
    in_job(monkeypatch, "42", restarted=True)
    run_cell(plan, execution)
    manifest = Run.read(plan.run_folder).manifest
    assert (manifest["attempts"], manifest["requeues"]) == (2, 1)


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_text("")])
def test_a_run_whose_trace_is_gone_goes_on_and_says_what_is_lost(
    make_plan: MakePlan, interrupted: Plan, execution: Execution,
    caplog: pytest.LogCaptureFixture, spoil: Spoil,
) -> None:  # fmt: skip
    spoil(trace_path(interrupted.run_folder, 0))
    run = resume(interrupted, execution)
    assert run.manifest["attempts"] == 2
    assert (sorted(run.ranks[0].trace.epochs), run.steps) == ([2], 12)
    assert 'trace-0.jsonl has no "epoch" event for epoch 0, which comes before' in caplog.text
    assert "trace-0.jsonl is lost, or was cut short: the run goes on with new ones" in caplog.text
    assert last_digest(interrupted) == whole(make_plan, execution)


def test_all_tables_can_be_made_of_a_run_that_goes_on_without_its_first_traces(
    make_plan: MakePlan, interrupted: Plan, execution: Execution
) -> None:
    trace_path(interrupted.run_folder, 0).unlink()
    runs = [resume(interrupted, execution)]
    for name, interval in (("baseline", "never"), ("again", "e1")):
        plan = make_plan(interval, name=name)
        cell = dataclasses.replace(plan.cell, repeat=int(interval == "e1"))
        plan = dataclasses.replace(plan, cell=cell)
        run_cell(plan, execution)
        runs.append(Run.read(plan.run_folder))
    tables = derive({name: entry.fill(runs) for name, entry in COLLECTED.items()})
    for name in tables:
        assert tables[name].shape[1] > 1
    assert sorted(tables["epochs"].groupby("run").size()) == [1, 3, 3]


def test_a_run_whose_trace_was_cut_short_goes_on_from_its_newest_version(
    make_plan: MakePlan, interrupted: Plan, execution: Execution
) -> None:
    path = trace_path(interrupted.run_folder, 0)
    lines = path.read_text().splitlines()
    kept = [line for line in lines if json.loads(line).get("epoch", 0) == 0]
    path.write_text("\n".join(kept) + "\n")
    run = resume(interrupted, execution)
    assert (run.manifest["attempts"], run.resumed) == (2, True)
    assert sorted(run.ranks[0].trace.epochs) == [0, 2]
    assert last_digest(interrupted) == whole(make_plan, execution)


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", '{"event":"lunch"}', "[" * 100_000, "\x00"),
        '{"event":"epoch","epoch":[],"start_ns":1,"end_ns":2,"samples":3}',
        '{"event":"steps","epoch":0,"first_step":0,"start_ns":[1],"end_ns":[null],"loss":[1]}',
    ],
    ids=["empty", "cut", "list", "unknown", "nested", "zero", "epoch", "steps"],
)
def test_a_trace_with_a_damaged_line_is_kept_and_the_run_goes_on_with_another(
    interrupted: Plan, execution: Execution, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    path = trace_path(interrupted.run_folder, 0)
    lines = path.read_text().splitlines()
    path.write_text(damaged := "\n".join([*lines[:4], line, *lines[4:]]) + "\n")
    assert resume(interrupted, execution).manifest["attempts"] == 2
    assert "trace-0.jsonl:5: not an event: " in caplog.text
    assert (interrupted.run_folder / "kept-1" / path.name).read_text() == damaged


@pytest.mark.parametrize("name", ["trace-0.jsonl", "launcher.jsonl"])
@pytest.mark.parametrize("how", [replace_by_fifo, lambda path: (path.unlink(), path.mkdir())])
def test_what_is_no_file_in_place_of_a_trace_is_moved_away(
    interrupted: Plan, execution: Execution, caplog: pytest.LogCaptureFixture, how: Spoil, name: str
) -> None:
    how(interrupted.run_folder / name)
    assert resume(interrupted, execution).manifest["attempts"] == 2
    assert f"{name}: cannot be read: " in caplog.text


def test_the_traces_of_a_run_that_failures_strike_stay_as_they_are(interrupted: Plan) -> None:
    """Without them nobody could explain its failures."""
    cell = dataclasses.replace(interrupted.cell, faults=PluginSpec("killed_between"))
    path = trace_path(interrupted.run_folder, 0)
    path.write_text(damaged := "{\n" + path.read_text())
    earlier_traces.keep_damaged_traces(dataclasses.replace(interrupted, cell=cell))
    assert path.read_text() == damaged
