"""Reading run folders: what a trace says is what the tables hold, and what is no result is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_folders import TRAINING, FakeRun, cell

from ckptbench.analysis.collect.expected import Expected, check_expected
from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.registry import COLLECTED, TABLES
from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import write_json
from ckptbench.config.record import StudyRecord
from ckptbench.inputs.datasets.dataset import dataset_sha256
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.layout import SCHEMA_VERSION, SEAL_COPY
from ckptbench.run.seal import seal

SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_every_event_becomes_a_row(tmp_path: Path) -> None:
    tables = collect([FakeRun(cell=cell(ranks=2), warmup_steps=3).write(tmp_path)])

    assert {name: len(frame) for name, frame in tables.items()} == {
        "runs": 1,
        "steps": 2 * 20,
        "epochs": 2 * 2,
        "checkpoints": 2 * 2,
        "evaluations": 2 * 2,
        "phases": 2 * 3,
        "memory": 2 * (2 * 2 + 2 + 1),
        "digests": 0,
        "values": 0,
        "failures": 0,
        "lineage": 0,
        "machine": 1,
    }
    assert tables["steps"]["warmup"].sum() == 2 * 3
    assert tables["steps"]["duration_s"].tolist() == pytest.approx([0.1] * 40)
    assert tables["steps"]["wait_s"].tolist() == [0.0] * 40
    assert tables["epochs"]["duration_s"].tolist() == pytest.approx([1.5] * 4)
    assert tables["epochs"]["warmup_s"].tolist() == pytest.approx([0.3, 0.0] * 2)
    assert set(tables["phases"]["attempt"]) == {1}


def test_the_parts_of_a_checkpoint_are_known_on_the_rank_that_writes(tmp_path: Path) -> None:
    files = {"model.pt": 1000, "rank-0.safetensors": 24, "rank-1.safetensors": 26}
    run = FakeRun(cell=cell(ranks=2), stall_s=lambda rank, step: 1.6, files=files, removal_s=0.4)
    checkpoints = collect([run.write(tmp_path)])["checkpoints"]

    wrote = checkpoints[checkpoints["writes"]].iloc[0]
    times = [
        "stall_s",
        "write_s",
        "sync_s",
        "checksum_s",
        "commit_s",
        "durable_s",
        "ended_s",
    ]
    assert wrote[times].tolist() == pytest.approx([1.6, 0.8, 0.3, 0.1, 0.2, 1.4, 2.0])
    assert wrote[["bytes", "files", "main_bytes", "rank_bytes"]].tolist() == [1050, 3, 1000, 50]
    waited = checkpoints[~checkpoints["writes"]]
    assert waited["rank"].tolist() == [1, 1]
    assert waited[["write_s", "bytes", "main_bytes"]].isna().all(axis=None)


def test_of_several_nodes_each_commits_its_part_and_the_shared_version_is_one(
    tmp_path: Path,
) -> None:
    near, both = (
        FakeRun(cell=cell(ranks=2), levels=levels, is_spread=True)
        for levels in (("memory",), ("memory", "shared"))
    )
    parts = collect([near.write(tmp_path / "near")])["checkpoints"]
    assert parts["writes"].tolist() == [True] * 4
    assert parts.groupby("step")["bytes"].sum().tolist() == [2 * 1024] * 2
    whole = collect([both.write(tmp_path / "both")])["checkpoints"]
    assert whole["writes"].tolist() == [True, True, False, False]
    assert set(whole["levels"]) == {"memory+shared"}
    assert whole.groupby("step")["bytes"].sum().tolist() == [1024] * 2


def test_every_wait_counts_as_stall_but_that_of_the_next_save_and_the_one_at_the_end(
    tmp_path: Path,
) -> None:
    holds_s = {"update": 0.1, "save": 0.2, "removal": 0.4, "end": 0.8}
    run = FakeRun(cell=cell(), stall_s=lambda rank, step: 1.6, hold_s=holds_s)
    checkpoints = collect([run.write(tmp_path)])["checkpoints"]
    assert checkpoints["stall_s"].tolist() == pytest.approx([2.1, 2.1])
    parts = checkpoints[["save_s", "update_hold_s", "save_hold_s", "removal_hold_s"]]
    assert parts.iloc[0].tolist() == pytest.approx([1.6, 0.1, 0.2, 0.4])


def test_a_checkpoint_has_its_place_and_is_steady_when_removed_blocks_can_be_reused(
    tmp_path: Path,
) -> None:
    run = FakeRun(cell=cell("s4", ranks=2), keep=2)
    checkpoints = collect([run.write(tmp_path)])["checkpoints"]
    for _, of_rank in checkpoints.groupby("rank"):
        assert of_rank["step"].tolist() == [4, 8, 12, 16, 20]
        assert of_rank["place"].tolist() == [1, 2, 3, 4, 5]
        # Before the fourth the first version was removed: until then three lay on the disk.
        assert of_rank["steady"].tolist() == [False, False, False, True, True]


def test_the_order_of_folders_does_not_matter(tmp_path: Path) -> None:
    folders = [FakeRun(cell=cell(repeat=repeat)).write(tmp_path) for repeat in range(3)]
    forward, backward = collect(folders), collect(folders[::-1])
    for name, frame in forward.items():
        pd.testing.assert_frame_equal(frame, backward[name])


def test_of_a_step_that_two_attempts_did_the_later_is_kept(tmp_path: Path) -> None:
    losses = iter(np.arange(100.0))
    run = FakeRun(cell=cell(), attempts=2, loss=lambda rank, step: next(losses))
    tables = collect([run.write(tmp_path)])

    # Attempt 1 drew losses 0-19 for steps 0-19; attempt 2 did steps 10-19 again.
    assert tables["steps"]["step"].tolist() == list(range(20))
    assert tables["steps"]["loss"].tolist() == [*range(10), *range(20, 30)]
    assert not tables["runs"]["timing_valid"].any()
    assert tables["phases"]["attempt"].tolist() == [1, 1, 1, 2, 2, 2]


def test_a_resumed_run_may_lack_the_steps_of_the_epoch_that_a_kill_cut_short(
    tmp_path: Path,
) -> None:
    folder = FakeRun(cell=cell(), attempts=2).write(tmp_path)
    edit_trace(folder, lambda event: event.get("first_step") != 0)

    steps = collect([folder])["steps"]

    assert steps["step"].tolist() == list(range(10, 20))


def test_tables_keep_their_types_through_parquet(tmp_path: Path) -> None:
    raw = collect([FakeRun(cell=cell(interval)).write(tmp_path) for interval in ("e1", "never")])
    tables = derive(raw)
    write_tables(tmp_path / "tables", tables)
    for name, frame in read_tables(tmp_path / "tables", TABLES).items():
        pd.testing.assert_frame_equal(frame, tables[name])
        assert (tmp_path / "tables" / f"{name}.csv").stat().st_size > 0


def test_a_run_that_did_not_end_is_refused(tmp_path: Path) -> None:
    folder = FakeRun(cell=cell()).write(tmp_path)
    (folder / "seal.json").unlink()
    with pytest.raises(RunFolderError, match=r"did not end .*run the study again"):
        collect([folder])


def test_changed_bytes_are_refused(tmp_path: Path) -> None:
    folder = FakeRun(cell=cell()).write(tmp_path)
    trace = folder / "trace-0.jsonl"
    trace.write_text(trace.read_text().replace("0", "1", 1))
    with pytest.raises(RunFolderError, match=r"trace-0.jsonl was changed .*remove"):
        collect([folder])


def test_a_truncated_trace_is_refused(tmp_path: Path) -> None:
    folder = FakeRun(cell=cell()).write(tmp_path)
    trace = folder / "trace-0.jsonl"
    trace.write_bytes(trace.read_bytes()[:-30])
    with pytest.raises(RunFolderError, match=r"trace-0.jsonl has \d+ bytes, was sealed with"):
        collect([folder])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"event":"epoch","epo', "Invalid control character"),
        (
            '{"event":"epoch","epoch":0}',
            "start_ns is missing",
        ),
        ('{"event":"lunch"}', "lunch"),
        ("[1]", "not an event"),
        (
            '{"event":"durable","step":5,"level":"shared","committed_ns":2}',
            "synced_ns is missing",
        ),
    ],
)
def test_a_line_that_is_no_event_is_named_by_its_number(
    tmp_path: Path, line: str, message: str
) -> None:
    folder = FakeRun(cell=cell()).write(tmp_path)
    trace = folder / "trace-0.jsonl"
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join([*lines[:4], line, *lines[4:]]) + "\n")
    seal(folder, 1)
    with pytest.raises(RunFolderError, match=rf"trace-0.jsonl:5: .*{message}.*; remove"):
        collect([folder])


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("start", 'no "start" event of rank 0'),
        ("steps", 'no "steps" event'),
        ("epoch", "has no epoch 0"),
        ("save", "has no checkpoint 10"),
        ("end", 'does not close with an "end" event'),
    ],
)
def test_a_missing_event_is_named(tmp_path: Path, lost: str, message: str) -> None:
    folder = FakeRun(cell=cell()).write(tmp_path)
    edit_trace(folder, lambda event: event["event"] != lost)
    with pytest.raises(RunFolderError, match=rf"trace-0.jsonl: .*{message}.*; remove"):
        collect([folder])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": "failed"}, "status is 'failed', not 'complete'"),
        ({"cell": {"framework": "pytorch"}}, "cell is not of this version"),
        ({"schema_version": 1}, f"schema_version is 1, not {SCHEMA_VERSION}"),
    ],
)
def test_a_manifest_that_is_no_result_is_refused(
    tmp_path: Path, fields: dict[str, object], message: str
) -> None:
    folder = FakeRun(cell=cell(), manifest=fields).write(tmp_path)
    with pytest.raises(RunFolderError, match=rf"manifest.json: {message}.*; remove"):
        collect([folder])


def test_a_folder_under_another_cells_name_is_refused(tmp_path: Path) -> None:
    folder = FakeRun(cell=cell()).write(tmp_path)
    copy = shutil.copytree(folder, tmp_path / cell(repeat=1).id)
    words = rf"{copy.name}/manifest.json: is that of the cell {folder.name}, and its folder is named {copy.name}; remo"
    with pytest.raises(RunFolderError, match=words):
        collect([folder, copy])


EXPECTED = Expected(training=dataclasses.asdict(TRAINING), datasets={"digits": "2" * 64})


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (
            dataclasses.replace(EXPECTED, training={**EXPECTED.training, "learning_rate": 0.5}),
            "training.learning_rate is 0.1, the study asks for 0.5",
        ),
        (
            dataclasses.replace(EXPECTED, training={**EXPECTED.training, "seed": 2}),
            "training.seed is 1, the study asks for 2",
        ),
        (
            dataclasses.replace(EXPECTED, training={**EXPECTED.training, "more": 1}),
            "training.more is 'missing', the study asks for 1",
        ),
        (
            dataclasses.replace(EXPECTED, datasets={"digits": "3" * 64}),
            "dataset_sha256 is 2{64}, and digits of the study has 3{64}",
        ),
    ],
)
def test_a_run_that_is_none_of_the_study_is_refused(
    tmp_path: Path, expected: Expected, words: str
) -> None:
    folder = FakeRun(cell=cell()).write(tmp_path)
    collect([folder], EXPECTED)
    collect([folder], dataclasses.replace(EXPECTED, datasets={}))
    with pytest.raises(RunFolderError, match=rf"manifest.json: {words}; remove .* run the cell ag"):
        collect([folder], expected)


def test_a_proof_of_compared_runs_is_expected_of_these_alone(tmp_path: Path) -> None:
    folders = [FakeRun(cell=cell(repeat=each), proof=each == 0).write(tmp_path) for each in (0, 1)]
    training = {**EXPECTED.training, "proof": "compared"}
    proven = dataclasses.replace(EXPECTED, training=training, proven=frozenset([cell().id]))
    collect(folders, proven)
    with pytest.raises(RunFolderError, match=r"training\.proof is True, the study asks for False"):
        collect(folders, dataclasses.replace(proven, proven=frozenset()))


def test_a_run_that_another_list_of_failures_struck_is_refused(tmp_path: Path) -> None:
    struck = cell(faults=PluginSpec("listed", (("name", "late"),)))
    folder = FakeRun(cell=struck).write(tmp_path)
    strikes = [[{"step": step, "rank": 0}] for step in (3, 4)]
    expected = [dataclasses.replace(EXPECTED, listed={struck.id: each}) for each in strikes]
    check_expected(run := Run.read(folder), expected[0])  # nothing notes it
    write_json(folder / SEAL_COPY, {"seal": {}, "made_from": {"listed": strikes[0]}})
    check_expected(run, expected[0])
    words = r"failures\.late is \[.*3.*, the study asks for \[.*4.*; remove .* run the cell ag"
    with pytest.raises(RunFolderError, match=words):
        check_expected(run, expected[1])


def test_runs_on_two_datasets_of_one_name_are_not_put_together(tmp_path: Path) -> None:
    folders = [
        FakeRun(cell=cell(repeat=repeat), manifest={"dataset_sha256": sha256}).write(tmp_path)
        for repeat, sha256 in enumerate(("a", "b"))
    ]
    with pytest.raises(
        RunFolderError, match="dataset_sha256 differs, so digits was prepared again betw"
    ):
        collect(folders)


def test_the_verb_refuses_runs_of_another_training_and_of_another_dataset(tmp_path: Path) -> None:
    FakeRun(cell=cell()).write(tmp_path)
    study, datasets = tmp_path / "study.json", tmp_path / "datasets"
    options = ("--study", study, "--runs", tmp_path, "--datasets", datasets, "--tables", tmp_path)
    other = dataclasses.replace(TRAINING, momentum=0.5)
    StudyRecord(cells=(cell(),), training=other).write(study)
    failed = verb("collect-runs", *options)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert "training.momentum is 0.9, the study asks for 0.5" in failed.stderr
    StudyRecord(cells=(cell(),), training=TRAINING).write(study)
    prepare("synthetic", datasets / "digits", {"height": 4, "width": 4, "train_samples": 20})
    failed = verb("collect-runs", *options)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert f"and digits of the study has {dataset_sha256(datasets / 'digits')}" in failed.stderr


def test_tables_of_another_version_are_refused(tmp_path: Path) -> None:
    pd.DataFrame({"run": ["a"]}).to_parquet(tmp_path / "runs.parquet")
    with pytest.raises(
        RunFolderError,
        match=r"runs.parquet: damaged, or of another version: .*; remove it and collect the runs",
    ):
        read_tables(tmp_path, COLLECTED)


def test_the_verbs_write_every_table_or_one_line_of_error(tmp_path: Path) -> None:
    folder, tables, log = (
        FakeRun(cell=cell()).write(tmp_path),
        tmp_path / "tables",
        tmp_path / "log",
    )

    study = tmp_path / "study.json"
    StudyRecord(cells=(cell(),), training=TRAINING).write(study)
    of_study = ("--study", study, "--runs", tmp_path, "--datasets", tmp_path / "datasets")

    assert verb("collect-runs", *of_study, "--tables", tables, "--log", log).returncode == 0
    assert verb("analyse", "--tables", tables, "--log", log).returncode == 0
    written = {path.stem for path in tables.glob("*.parquet")}
    assert written == set(TABLES)

    (folder / "seal.json").unlink()
    failed = verb("collect-runs", *of_study, "--tables", tables, "--log", log)
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1
    assert failed.stderr == log.read_text()


def verb(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ckptbench.workflow", name, *arguments]
    environment = {"PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [*map(str, command)], env=environment, capture_output=True, text=True, check=False
    )


def edit_trace(folder: Path, keep: Callable[[dict[str, object]], bool]) -> None:
    """Drop the events of rank 0 that are not to be kept, and seal the folder again."""
    trace = folder / "trace-0.jsonl"
    lines = [line for line in trace.read_text().splitlines() if keep(json.loads(line))]
    trace.write_text("\n".join(lines) + "\n")
    seal(folder, 1)
