"""`ckptbench-probe check kill` on real trainings: ways to save that a kill can spoil, and ways that it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.study.probed_training import Checked, checked, warm

KILLS = Path(__file__).with_name("probe_kills.py")
TRAINERS = KILLS.with_name("probe_stops_trainers.py")


def killed(folder: Path, how: str, *options: str) -> Checked:
    python = warm("pytorch", "check resume")
    return checked(folder, "kill", *options, "--", python, str(KILLS), "{folder}", how)


def points(found: Checked) -> dict[str, Any]:
    return {one["point"]: one["verdict"] for one in found.report["outcomes"]}


@pytest.mark.frameworks("pytorch")
def test_a_file_that_is_overwritten_is_torn(tmp_path: Path) -> None:
    found = killed(tmp_path, "in-place")
    assert found.lines[0] == "TORN: 2 of 2 kills in save 3, of update 6, leave no checkpoint that it resumes from"  # fmt: skip
    assert found.lines[1].startswith("step-0000.pt empty: it failed: exit code 1, its last line: EOFError")  # fmt: skip
    assert points(found) == {"step-0000.pt empty": "torn", "half of step-0000.pt": "torn"}
    assert found.report["exit_code"] == 1


@pytest.mark.frameworks("pytorch")
def test_a_file_that_is_renamed_when_it_is_whole_is_safe(tmp_path: Path) -> None:
    found = killed(tmp_path, "rename", "--all")
    assert found.lines[:2] == [
        "safe: after each of 5 kills in save 3, of update 6, it is resumed from a whole checkpoint",
        "resumed whole: from 4 (4 times), from 6 (1 time)",
    ]
    assert list(points(found)) == ["before partial is written", "partial empty", "half of partial", "before the rename to step-0006.pt", "before step-0002.pt is removed"]  # fmt: skip
    assert found.report["exit_code"] == 0


@pytest.mark.frameworks("pytorch")
def test_a_checkpoint_that_is_removed_before_the_next_is_there_is_lost(tmp_path: Path) -> None:
    found = killed(tmp_path, "remove-first")
    assert found.lines[0] == "LOSES ALL: 4 of 5 kills in save 3, of update 6, leave no checkpoint"
    assert points(found)["before step-0004.pt is removed"] == "safe"
    assert found.report["exit_code"] == 3


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize(("how", "code"), [("pointer-first", 1), ("pointer-last", 0)])
def test_a_pointer_is_moved_after_its_checkpoint(how: str, code: int, tmp_path: Path) -> None:
    found = killed(tmp_path, how)
    assert found.report["exit_code"] == code, found.lines
    assert points(found)["half of partial"] == ("torn" if code else "safe")


@pytest.mark.frameworks("trainers")
def test_the_trainer_of_hugging_face_takes_a_half_checkpoint(tmp_path: Path) -> None:
    python = warm("trainers", "check resume")
    found = checked(tmp_path, "kill", "--save", "2", "--", python, str(TRAINERS), "{folder}", "hf")
    assert found.report["exit_code"] == 1, found.lines
    assert points(found)["checkpoint-8/trainer_state.json empty"] == "torn"
    assert set(points(found).values()) == {"torn"}
