"""`study.json`: what the workflow writes is what verbs read, and nothing else is read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import TRAINING, cell

from ckptbench.common.errors import RunFolderError
from ckptbench.config.record import StudyRecord

STUDY = StudyRecord(
    cells=(cell("never"), cell(repeat=1)),
    training=TRAINING,
    resume=True,
    keep_after_run=2,
    run_minutes=0.5,
    repeat=True,
)


def test_a_study_is_read_as_it_was_written(tmp_path: Path) -> None:
    for number, study in enumerate((STUDY, StudyRecord())):
        study.write(tmp_path / str(number) / "study.json")
        assert StudyRecord.read(tmp_path / str(number) / "study.json") == study


def test_minutes_are_sixty_seconds_and_no_limit_is_none() -> None:
    assert STUDY.timeout_seconds == 30
    assert StudyRecord().timeout_seconds is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cells": [{"framework": "pytorch"}]}, "strategy"),
        ({"training": {"later": 1}}, "later"),
        ({"later": 1}, "later"),
    ],
)
def test_a_study_that_is_not_as_it_was_written_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    path = tmp_path / "study.json"
    STUDY.write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RunFolderError, match=rf"study\.json: .*{words}.*start the workflow again"):
        StudyRecord.read(path)


def test_a_study_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    STUDY.write(path)
    path.write_text(path.read_text().replace("resume", "again"))
    with pytest.raises(RunFolderError, match="resume"):
        StudyRecord.read(path)


def test_a_verb_says_in_one_line_that_the_study_is_spoilt(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    where: list[object] = ["--runs", tmp_path, "--study", tmp_path / "study.json"]
    training = {
        "seed": 1, "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0, "steps_per_epoch": 1,
        "test_samples": 0, "warmup_steps": 0, "keep_during_run": 1,
    }  # fmt: skip
    train = ["--cell", json.dumps(cell().to_json()), "--training", json.dumps(training)]
    train += ["--dataset", tmp_path, "--environment", tmp_path, "--lock", tmp_path / "lock"]
    collect = ["--datasets", tmp_path, "--tables", tmp_path]
    for verb, options in (("train-cell", train), ("collect-runs", collect)):
        command = [sys.executable, "-m", "ckptbench.workflow", verb, *where, *options]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert "not the record of a study" in done.stderr
