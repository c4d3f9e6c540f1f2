"""The study's tests run in the frameworks' real environments: those that the selected tests name are made first.

A test names its frameworks by its parameter `framework`, or by the mark `frameworks`; the environment that prepares
data is always made.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "frameworks(*names): the frameworks in whose environments a test runs"
    )


def frameworks_of(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers("frameworks"):
        yield from mark.args
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        name = item.callspec.params.get("framework")
        if isinstance(name, str):
            yield name


@pytest.fixture(scope="session", autouse=True)
def environments(request: pytest.FixtureRequest) -> None:
    """Made, or brought up to their locks, by the workflow's own rule."""
    names = {name for item in request.session.items for name in frameworks_of(item)}
    made = [f".environments/{name}/ready.json" for name in ("data", *sorted(names))]
    command = [sys.executable, "-m", "snakemake", *made, "--cores", "2", "--quiet", "all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared dataset `digits`."""
    folder = tmp_path_factory.mktemp("digits")
    python = ROOT / ".environments" / "data" / "bin" / "python"
    command = [str(python), "scripts/prepare_dataset.py", "digits", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return folder
