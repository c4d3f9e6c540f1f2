"""Paths that a user gives to make reach Snakemake whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ODD = ["my costs.yaml", "it's.yaml", 'a"b.yaml', "a`id`.yaml", "a;b&c.yaml", "a\\b.yaml", "学習.yaml", "$(id).yaml"]  # fmt: skip


def asked(folder: Path, *goals: str) -> list[str]:
    """What the Makefile hands to Snakemake."""
    (folder / "python").symlink_to(sys.executable)
    told = folder / "told.json"
    program = f"import json, sys; json.dump(sys.argv[1:], open({str(told)!r}, 'w'))"
    (folder / "snakemake").write_text(f"#!{sys.executable}\n{program}\n")
    (folder / "snakemake").chmod(0o755)
    command = ["make", "-C", str(ROOT), "-o", ".venv/ready", "-o", "environment", f"BIN={folder}", *goals]  # fmt: skip
    subprocess.run(command, capture_output=True, text=True, check=False)
    words: list[str] = json.loads(told.read_text())
    return words


@pytest.mark.parametrize("name", ODD)
def test_decide_names_the_files_that_it_was_given(name: str, tmp_path: Path) -> None:
    value = name.replace("$", "$$")  # for make
    words = asked(tmp_path, "decide", f"NUMBERS={value}", f"CONFIG=of {value}")
    section = words[words.index("--config") + 1].removeprefix("decision=")
    assert json.loads(section) == {"numbers": name}
    assert words[words.index("--configfile") + 1] == f"of {name}"


@pytest.mark.parametrize("name", ODD)
def test_audit_names_the_config_that_it_was_given(name: str, tmp_path: Path) -> None:
    value = name.replace("$", "$$")
    words = asked(tmp_path, "audit", f"CONFIG={value}")
    assert words[words.index("--configfile") + 1] == name
