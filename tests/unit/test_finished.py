"""A finished run is never made again, unless something that it is made from has changed."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import interrupt

from ckptbench.common.files import read_json
from ckptbench.inputs.datasets.dataset import dataset_sha256
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.launch.run import Execution, run_cell
from ckptbench.run.failure import Failure
from ckptbench.run.layout import trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.seal import seal, verify_seal

MakePlan = Callable[..., Plan]


@pytest.fixture
def execution(execution: Execution) -> Execution:
    return dataclasses.replace(execution, environment_sha256="of it")


def finished(plan: Plan, execution: Execution) -> bytes:
    """The trace of a whole run whose seal was removed, as Snakemake does before it runs a rule again."""
    run_cell(plan, execution)
    (plan.run_folder / "seal.json").unlink()
    return trace_path(plan.run_folder, 0).read_bytes()


def test_a_finished_run_is_not_trained_again_when_its_workflow_has_missed_the_end(
    make_plan: MakePlan, execution: Execution, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    plan = make_plan("e1")
    keeping = dataclasses.replace(execution, keep_after_run=1)
    trace = finished(plan, keeping)
    manifest = (plan.run_folder / "manifest.json").read_bytes()
    for _ in range(2):
        run_cell(plan, keeping)
        assert trace_path(plan.run_folder, 0).read_bytes() == trace
        assert (plan.run_folder / "manifest.json").read_bytes() == manifest
        assert len(verify_seal(plan.run_folder)) == 3
        (plan.run_folder / "seal.json").unlink()
    assert "it would be made from the same again: it is kept" in caplog.text
    assert [path.name for path in plan.checkpoint_folder.glob("version-*")] == ["version-00000012"]
    run_cell(plan, execution)
    assert list(plan.checkpoint_folder.glob("version-*")) == []


def another_training(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    training = dataclasses.replace(plan.training, learning_rate=0.2)
    return dataclasses.replace(plan, training=training), execution


def another_cell(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    cell = dataclasses.replace(plan.cell, batch_size=8)
    return dataclasses.replace(plan, cell=cell), execution


def another_file_system(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    folder = plan.run_folder.with_name("elsewhere")
    return dataclasses.replace(plan, checkpoint_folder=folder), execution


def another_dataset(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    folder = plan.run_folder.with_name("dataset")
    size = {"height": 4, "width": 4, "channels": 1, "classes": 3, "train_samples": 64}
    prepare("synthetic", folder, {**size, "test_samples": 32})
    return dataclasses.replace(plan, dataset_sha256=dataset_sha256(folder)), execution


def remade_dataset(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    """The same samples, with another text of the description around their checksums."""
    folder = plan.run_folder.with_name("dataset")
    shutil.copytree(plan.dataset_folder, folder)
    description = folder / "dataset.json"
    description.write_text(description.read_text() + "\n")
    other = dataclasses.replace(plan, dataset_folder=folder, dataset_sha256=dataset_sha256(folder))
    return other, execution


def another_lock(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    return dataclasses.replace(plan, lock_sha256="another"), execution


def another_list(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    """Of failures. This cell names none, so that no rank is struck."""
    return dataclasses.replace(plan, listed=(Failure(step=3, rank=0),)), execution


def another_environment(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    return plan, dataclasses.replace(execution, environment_sha256="another")


def forced(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    return plan, dataclasses.replace(execution, repeat=True)


def changed_trace(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    with trace_path(plan.run_folder, 0).open("a") as file:
        file.write("\n")
    return plan, execution


def spoilt_copy(plan: Plan, execution: Execution) -> tuple[Plan, Execution]:
    path = plan.run_folder / "seal-copy.json"
    path.write_text(path.read_text()[:-20])
    return plan, execution


@pytest.mark.parametrize(
    "change",
    [
        another_training, another_cell, another_file_system, another_dataset, another_lock, another_list, another_environment,
        forced, changed_trace, spoilt_copy,
    ],
)  # fmt: skip
def test_a_finished_run_is_trained_again_where_it_would_be_another_or_was_spoilt(
    make_plan: MakePlan,
    execution: Execution,
    change: Callable[[Plan, Execution], tuple[Plan, Execution]],
) -> None:
    plan = make_plan("e1")
    trace = finished(plan, execution)
    run_cell(*change(plan, execution))
    assert trace_path(plan.run_folder, 0).read_bytes() != trace + b"\n"
    assert trace_path(plan.run_folder, 0).read_bytes() != trace
    assert verify_seal(plan.run_folder)


def test_all_that_a_seal_names_is_on_stable_storage_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"manifest.json", "trace-0.jsonl", "final-0.npz", "strikes-0.jsonl", "launcher.jsonl"}
    for name in files:
        (tmp_path / name).write_text("{}")
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    seal(tmp_path, 1)
    assert {path.name for path in verify_seal(tmp_path)} == files
    first = next(place for place, name in enumerate(synced) if "seal" in name)
    assert set(synced[:first]) == files


def test_a_finished_run_is_kept_where_its_dataset_was_made_again_with_the_same_samples(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("e1")
    trace = finished(plan, execution)
    run_cell(*remade_dataset(plan, execution))
    assert trace_path(plan.run_folder, 0).read_bytes() == trace
    assert verify_seal(plan.run_folder)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (another_training, "training.learning_rate"),
        (another_cell, "cell.batch_size"),
        (another_file_system, "checkpoint_folder"),
        (another_dataset, "dataset_sha256"),
        (another_lock, "lock_sha256"),
        (another_list, "listed"),
        (another_environment, "environment_sha256"),
    ],
)
def test_the_log_names_what_a_finished_run_differs_in(
    make_plan: MakePlan,
    execution: Execution,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Plan, Execution], tuple[Plan, Execution]],
    name: str,
) -> None:
    caplog.set_level("INFO")
    plan = make_plan("e1")
    finished(plan, execution)
    run_cell(*change(plan, execution))
    assert f"the sealed run is not kept: changed since then: {name}" in caplog.messages


def test_a_finished_run_that_was_begun_again_is_no_result_any_more(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    finished(plan, execution)
    interrupt(plan, dataclasses.replace(execution, repeat=True), monkeypatch, steps=0)
    trace = trace_path(plan.run_folder, 0).read_bytes()
    run_cell(plan, execution)
    assert trace_path(plan.run_folder, 0).read_bytes() != trace
    assert read_json(plan.run_folder / "manifest.json")["status"] == "complete"
