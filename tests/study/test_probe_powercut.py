"""`ckptbench-probe check powercut` on real trainings: a rename without syncs, and with those of the file and its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.study.probed_training import Checked, checked, cold, warm

KILLS = Path(__file__).with_name("probe_kills.py")


def cut(folder: Path, how: str, *options: str) -> Checked:
    """What is recorded starts cold: strace does not see a process that a server has forked."""
    again = f"{warm('pytorch', 'check resume')} {KILLS} {{folder}} {how}"
    command = [cold("pytorch"), str(KILLS), "{folder}", how]
    return checked(folder, "powercut", *options, "--resume", again, "--", *command)


def points(found: Checked) -> dict[str, Any]:
    return {one["point"]: one["resumed_from"] or one["verdict"] for one in found.report["outcomes"]}


@pytest.mark.frameworks("pytorch")
def test_torch_save_and_a_rename_without_syncs_is_torn(tmp_path: Path) -> None:
    found = cut(tmp_path, "rename")
    assert found.lines[0] == "TORN: 3 of 5 power cuts in save 3, of update 6, leave no checkpoint that it resumes from"  # fmt: skip
    assert found.lines[1].startswith("before the next save: step-0006.pt is empty: it failed: exit code 1, its last line: EOFError")  # fmt: skip
    assert points(found) == {
        "before the next save: step-0006.pt is empty": "torn",
        "before the next save: step-0006.pt reads as zeros in the middle": "torn",
        "before the next save: nothing is lost": 6,
        "before the next save: the rename to step-0006.pt is lost, and 2 other changes of names with it": 4,
        "after the rename to step-0006.pt: step-0006.pt is empty": "torn",
    }  # fmt: skip
    assert found.report["exit_code"] == 1


@pytest.mark.frameworks("pytorch")
def test_with_syncs_of_file_and_folder_it_is_safe(tmp_path: Path) -> None:
    found = cut(tmp_path, "synced")
    assert found.lines[:2] == [
        "safe: after each of 2 power cuts in save 3, of update 6, it is resumed from a whole checkpoint",
        "resumed whole: from 6 (2 times)",
    ]
    assert found.report["exit_code"] == 0
