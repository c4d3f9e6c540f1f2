"""What `--for` prints is read by the libraries themselves: they save when it says, and keep as many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ckptbench.report.answer.programs import rows
from tests.study.probed_training import plain, warm

TRYING = str(Path(__file__).with_name("pasted_settings.py"))


@pytest.mark.parametrize(
    ("tool", "environment", "wanted"),
    [
        pytest.param("hf", "trainers", {"steps": 4, "keep": 2, "at a signal": True}, marks=pytest.mark.frameworks("trainers")),
        pytest.param("lightning", "trainers", {"left": [16, 20], "seconds": 300}, marks=pytest.mark.frameworks("trainers")),
        pytest.param("orbax", "jax", {"left": [16, 20], "seconds": 300}, marks=pytest.mark.frameworks("jax")),
    ],
)  # fmt: skip
def test_a_library_takes_what_is_pasted(
    tool: str, environment: str, wanted: dict[str, Any], tmp_path: Path
) -> None:
    lines = rows(tool, steps=4, interval_s=300.0, stop_s=10.0, is_async=tool != "hf", keep=2)
    out = plain(tmp_path, warm(environment, "plain"), TRYING, tool, json.dumps(dict(lines)))
    assert json.loads(out.splitlines()[-1]) == wanted
