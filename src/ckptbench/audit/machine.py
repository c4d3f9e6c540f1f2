"""The whole audit of this machine."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ckptbench.audit import calibration, storage, study
from ckptbench.audit.check import Check
from ckptbench.common.errors import CheckpointError
from ckptbench.common.remedies import blame

log = logging.getLogger(__name__)


def audit_machine(
    tables: Mapping[str, pd.DataFrame], folder: Path, lock_sha256: str, size: calibration.Size
) -> list[Check]:
    """All checks. `tables` are those of the study, as far as there are any; `folder` takes its checkpoints.

    Everything that the audit writes lies in a folder of its own in `folder`, and is removed. Raises CheckpointError where
    that cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix="audit-", dir=folder, ignore_cleanup_errors=True
        ) as own:
            return _checks(tables, Path(own), lock_sha256, size)
    except OSError as error:
        named = Path(os.fsdecode(error.filename or folder))
        if not (named.is_relative_to(folder) or folder.is_relative_to(named)):
            raise  # a file or a program that is missing elsewhere
        raise CheckpointError(
            f"{folder} cannot take the files of the audit, which need 200 MB there: "
            f"{blame(error, folder, 'name another folder in checkpoints.folder')}"
        ) from error


def _checks(
    tables: Mapping[str, pd.DataFrame], own: Path, lock_sha256: str, size: calibration.Size
) -> list[Check]:
    log.info("calibration: short trainings whose cost is known (a minute)")
    size = size.within(calibration.step_seconds(own / "pilot", lock_sha256))
    runs = calibration.collected_runs(own, lock_sha256, size)
    found = [
        *calibration.checks_of(runs, size),
        *study.undisturbed_runs(runs, "the calibration"),
        study.equal_runs(tables),
    ]
    log.info("fsync against O_DIRECT")
    found.append(storage.bandwidth(own))
    os.sync()  # what was written above must not be written back during the reads
    log.info("cold reads")
    found += [*storage.cold_reads(own), *study.cold_restarts(tables)]
    return [*found, *study.undisturbed_runs(tables)]
