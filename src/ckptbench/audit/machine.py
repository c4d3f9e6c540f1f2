"""The whole audit of this machine."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ckptbench.audit import baselines, calibration, cold, disturbance, recorder_cost, storage
from ckptbench.audit.check import Check
from ckptbench.errors import CheckpointError
from ckptbench.remedies import blame

log = logging.getLogger(__name__)

FULL = {errno.ENOSPC, errno.EDQUOT}
NO_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.EEXIST}
"""The errors of a folder that is not there or may not be written to, if they name it."""


def audit_machine(
    tables: Mapping[str, pd.DataFrame],
    folder: Path,
    lock: Path,
    size: calibration.Size | None = None,
) -> list[Check]:
    """All checks. `tables` are those of the study, as far as there are any; `folder` takes its checkpoints. `size` is that of the calibration.

    Everything that the audit writes lies in a folder of its own in `folder`, and is removed. Raises CheckpointError where
    that cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix="audit-", dir=folder, ignore_cleanup_errors=True
        ) as own:
            return _checks(tables, Path(own), lock, size)
    except OSError as error:
        if not _is_of(folder, error):
            raise
        raise CheckpointError(
            f"{folder} cannot take the files of the audit, which need 200 MB there: "
            f"{blame(error, folder, 'name another folder in checkpoints.folder')}"
        ) from error


def _is_of(folder: Path, error: OSError) -> bool:
    """Whether the folder cannot take more files. A file or a program that is missing elsewhere is another error."""
    if error.errno in FULL:
        return True
    if error.errno not in NO_PLACE or error.filename is None:
        return False
    named = Path(os.fsdecode(error.filename))
    return named.is_relative_to(folder) or folder.is_relative_to(named)


def _checks(
    tables: Mapping[str, pd.DataFrame], own: Path, lock: Path, size: calibration.Size | None
) -> list[Check]:
    usable = storage.takes_versions(own)
    if usable.verdict == "fails":
        return [usable]  # nothing else can be measured where nothing can be saved
    log.info("calibration: short trainings whose cost is known (half a minute)")
    found = [usable, *calibration.calibrate(own, lock, size)]
    log.info("the baselines of the study against one another")
    found.append(baselines.check(tables))
    log.info("the cost of the recorder (some seconds)")
    found.append(recorder_cost.check(own))
    log.info("fsync against O_DIRECT, and the flushes of the device")
    found += storage.checks(own)
    os.sync()  # what was written above must not be written back during the reads
    log.info("cold reads")
    return [*found, *cold.checks(own, tables), *disturbance.checks(tables)]
