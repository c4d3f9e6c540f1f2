"""The folders of `trainers`: short scripts of their own, whose packages their environment has locked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ckptbench.inputs.environments.lock_file import read_lock

ROOT = Path(__file__).resolve().parents[2]
ROWS = sorted(path.parent for path in (ROOT / "trainers").glob("*/trainer.yaml"))
MOST_LINES = 80


def of(row: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((row / "trainer.yaml").read_text())
    return content


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_trainer_is_a_short_script_in_a_locked_environment(row: Path) -> None:
    trainer = of(row)
    script = (row / "train.py").read_text()
    assert len(script.splitlines()) <= MOST_LINES
    locked = read_lock(ROOT / "envs" / f"{trainer['environment']}.txt")
    assert {*trainer["packages"]} <= {*locked}
    commands = [trainer["command"], *(one["command"] for one in trainer["settings"])]
    assert all("{script}" in command and "{folder}" in command for command in commands)
    assert "ckptbench" not in script  # it is measured as its users run it


def test_there_are_a_dozen_trainers_and_controls_on_both_sides() -> None:
    controls = [of(row)["control"] for row in ROWS]
    assert controls.count("") >= 12
    assert controls.count("right") == 1
    assert sum(control.startswith("wrong: ") for control in controls) >= 4
