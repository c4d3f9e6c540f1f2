"""The wheel has all that the command needs without a clone."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "ckptbench"
RATES = ROOT / "config" / "failures"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*command, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_has_the_command(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    entry_points = configparser.ConfigParser()
    entry_points.read_string(wheel.read(name).decode())
    assert dict(entry_points["console_scripts"]) == {"ckptbench": "ckptbench.commands.main:main"}


def test_the_wheel_has_every_file_of_the_source(wheel: zipfile.ZipFile) -> None:
    """Scripts, styles, pages and data too, which are read when the command runs."""
    source = {
        f"ckptbench/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    rates = {f"ckptbench/decide/failures/{path.name}" for path in RATES.glob("*.yaml")}
    expected = source | rates
    assert expected <= set(wheel.namelist())
    endings = {Path(path).suffix for path in expected}
    assert {".py", ".js", ".css", ".html", ".json", ".yaml", ".txt"} <= endings


def test_the_extra_is_declared(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
    metadata = wheel.read(name).decode()
    assert "Provides-Extra: decide" in metadata
    for package in ("pandas", "click", "rich"):
        assert f"Requires-Dist: {package}; extra == 'decide'" in metadata
