"""submitit's own tests of its executor for one machine, which come with the package, with our executor on a real PBS.

That of Grid Engine shares its base.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from submitit.auto import test_auto
from submitit.local import local, test_local

from submitit_pbs import PbsExecutor
from tests.cluster.pbs_user import PYTHON

MORE_TASKS = "asks for several tasks, which is refused: a job is one task"
LEFT_OUT = {
    "test_local_job": MORE_TASKS,
    "test_get_first_task_error": MORE_TASKS,
    "test_stdout": MORE_TASKS,
    "test_killed": "kills the process that is its own child",
    "test_cancel": "wants INTERRUPTED at once: a scheduler takes its time, and its word is CANCELLED",
    "test_make_subprocess": "is about the process that watches over a local job",
    "test_setup": "finds its executor by the name local",
    "test_requeuing": "counts steps of a second, and on a scheduler Python's start counts too",
    "test_long_running_job": "takes two minutes, in submitit too only where they are asked for",
}
CASES = [test_auto.test_redirect_stdout_stderr]
CASES += [
    function
    for name, function in inspect.getmembers(test_local, inspect.isfunction)
    if name.startswith("test_") and name not in LEFT_OUT
]
START_MIN = 4 / 60
"""The clock of a scheduler's job also runs while Python starts."""


class Adapted(PbsExecutor):
    """Takes the parameters of the executor for one machine."""

    def __init__(self, folder: Path, **given: Any) -> None:
        super().__init__(folder, python=PYTHON, **given)

    def _internal_update_parameters(self, **asked: Any) -> None:
        if "signal_delay_s" in asked:
            asked["stop_seconds"] = asked.pop("signal_delay_s")
        if "timeout_min" in asked:
            asked["timeout_min"] += START_MIN
        super()._internal_update_parameters(**asked)


@pytest.mark.usefixtures("pbs_client")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_submitit_expects(
    case: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "jobs"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(local, "LocalExecutor", Adapted)
    monkeypatch.setattr(local, "LocalJob", Adapted(folder).job_class)
    fixtures = {
        "tmp_path": folder,
        "weird_tmp_path": folder / "a 0",
        "executor": Adapted(folder),
    }
    case(**{name: fixtures[name] for name in inspect.signature(case).parameters})
