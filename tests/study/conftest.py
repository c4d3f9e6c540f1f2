"""The study's tests run in the frameworks' real environments: where one is missing, that is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ckptbench.frameworks import FRAMEWORKS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def environments() -> None:
    """Made, or brought up to their locks, by the workflow's own rule."""
    made = [f".environments/{name}/ready.json" for name in ("data", *FRAMEWORKS)]
    command = [sys.executable, "-m", "snakemake", *made, "--cores", "2", "--quiet", "all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
