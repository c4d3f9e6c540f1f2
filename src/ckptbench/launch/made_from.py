"""What a run is made from: a repetition with all of it equal would be the same run once more."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ckptbench import __version__
from ckptbench.data.dataset import DESCRIPTION
from ckptbench.environments.create import READY
from ckptbench.machine.files import file_sha256
from ckptbench.runs.plan import Plan


def made_from(plan: Plan, *, python: Path, lock: Path) -> dict[str, Any]:
    """The inputs and parameters of the rule `train_cell`, as JSON: files by their SHA-256, None where one is missing.

    `python` is the interpreter of the framework's environment, `lock` the lock from which it was made.
    """
    return {
        "cell": plan.cell.to_json(),
        "training": dataclasses.asdict(plan.training),
        "checkpoint_folder": str(plan.checkpoint_folder),
        "dataset": _sha256(plan.dataset_folder / DESCRIPTION),
        "lock": _sha256(lock),
        "environment": _sha256(python.parent.parent / READY),
        "ckptbench_version": __version__,
    }


def _sha256(path: Path) -> str | None:
    return file_sha256(path) if path.is_file() else None
