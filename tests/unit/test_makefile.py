"""Paths that a user gives to make reach Snakemake whole, and `make help` names every target."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu_study import PATH

ROOT = Path(__file__).resolve().parents[2]
ODD = ["-n.yaml", "my costs.yaml", "it's.yaml", 'a"b.yaml', "a`id`.yaml", "a;b&c.yaml", "a\\b.yaml", "学習.yaml", "$(id).yaml"]  # fmt: skip


def run(folder: Path, *goals: str) -> str:
    """What make prints, with programs that do nothing."""
    folder.mkdir(exist_ok=True)
    (folder / "python").symlink_to(sys.executable)
    told = folder / "told.json"
    program = f"import json, sys; json.dump(sys.argv[1:], open({str(told)!r}, 'w'))"
    (folder / "snakemake").write_text(f"#!{sys.executable}\n{program}\n")
    (folder / "snakemake").chmod(0o755)
    command = ["make", "-C", str(ROOT), "-o", ".venv/ready", "-o", "environment", f"BIN={folder}", *goals]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def asked(folder: Path, *goals: str) -> list[str]:
    """What the Makefile hands to Snakemake."""
    run(folder, *goals)
    words: list[str] = json.loads((folder / "told.json").read_text())
    return words


def config(folder: Path, name: str) -> tuple[str, str]:
    """The path of a config file with this name, and the same as make reads it."""
    path = folder / name
    path.touch()
    return str(path), str(path).replace("$", "$$")


@pytest.mark.parametrize("name", ODD)
def test_decide_names_the_files_that_it_was_given(name: str, tmp_path: Path) -> None:
    path, value = config(tmp_path, f"of {name}")
    words = asked(tmp_path, "decide", f"NUMBERS={name.replace('$', '$$')}", f"CONFIG={value}")
    section = words[words.index("--config") + 1].removeprefix("decision=")
    assert json.loads(section) == {"numbers": name}
    assert f"--configfile={path}" in words


@pytest.mark.parametrize("goal", ["audit", "plan"])
@pytest.mark.parametrize("name", ODD)
def test_audit_and_plan_name_the_config_that_they_were_given(
    goal: str, name: str, tmp_path: Path
) -> None:
    path, value = config(tmp_path, name)
    words = asked(tmp_path, goal, f"CONFIG={value}")
    assert f"--configfile={path}" in words


@pytest.mark.parametrize("goal", ["decide", "audit", "plan"])
def test_a_config_that_is_not_there_is_said_in_one_line(goal: str, tmp_path: Path) -> None:
    printed = run(tmp_path, goal, f"CONFIG={tmp_path / 'my config.yaml'}", "NUMBERS=costs.yaml")
    assert f"CONFIG is {tmp_path}/my config.yaml: there is no such file" in printed
    assert not (tmp_path / "told.json").exists()


@pytest.mark.parametrize("goal", ["decide", "audit", "plan"])
def test_of_a_config_that_cannot_be_read_the_line_is_named(goal: str, tmp_path: Path) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "snakemake").write_text("#!/bin/sh\nexit 1\n")
    for program in ("python", "snakemake"):
        (tmp_path / program).chmod(0o755)
    broken = tmp_path / "-my config.yaml"
    broken.write_text("matrix: [a\nb: :\n")
    command = ["make", "-C", str(ROOT), "-o", ".venv/ready", "-o", "environment", f"BIN={tmp_path}", goal, f"CONFIG={broken}", "NUMBERS=costs.yaml"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert f"{broken}: line 2, column 2: not YAML" in done.stdout + done.stderr


def test_a_profile_that_is_not_there_is_said_with_those_that_are(tmp_path: Path) -> None:
    printed = run(tmp_path, "plan", "PROFILE=ABCI")
    assert "PROFILE is ABCI: name one of abci, gridengine, local, " in printed
    assert not (tmp_path / "told.json").exists()
    own = tmp_path / "my profile"
    own.mkdir()
    assert str(own) in asked(tmp_path / "again", "plan", f"PROFILE={own}")


def test_gpu_runs_its_study_with_the_environments_that_are_there(tmp_path: Path) -> None:
    words = asked(tmp_path, "gpu")
    study = words[words.index("--configfile") + 1]
    assert (ROOT / study).samefile(PATH)
    assert words[words.index("--config") + 1 :] == ["environments={pytorch: present, data: present}"]  # fmt: skip


def test_help_names_every_target_that_a_user_may_give() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):(?!=)", text, re.MULTILINE)
    listed = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    named = re.findall(r"^([a-z-]+) +\S", listed.stdout, re.MULTILINE)
    assert set(targets) - set(named) == {"make-venv"}, "give the target a text after ##"
