"""A finished run that is started again although nothing has changed: its seal is restored.

Snakemake takes a job for unfinished if it did not see its end, because it was killed just after the seal, or interrupted
alone. It then removes the output of the job, `seal.json`, and starts the job again. Of a run that was sealed,
`seal-copy.json` is still there. It was written just before the seal.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptbench.errors import RunFolderError
from ckptbench.machine.files import read_json, write_json
from ckptbench.runs.layout import SEAL, SEAL_COPY
from ckptbench.runs.seal import verify_seal

log = logging.getLogger(__name__)


def restore_seal(folder: Path, made_from: Mapping[str, Any]) -> bool:
    """Write the removed seal again if the folder still is the result of the run that would be made from `made_from`.

    `made_from` is JSON, as it was given to `seal`. No sealed file may have changed. Returns whether the folder is a
    result again. False also if the seal is still there: then nobody has removed it, and the run is wanted once more.
    """
    path = folder / SEAL
    if path.exists() or not (folder / SEAL_COPY).exists():
        return False
    try:
        copy = read_json(folder / SEAL_COPY)
        changed = _changed(copy.get("made_from"), made_from)
        if changed:
            log.info("the sealed run is not kept: changed since then: %s", ", ".join(changed))
            return False
        write_json(path, copy.get("seal") or {})
        verify_seal(folder)
    except RunFolderError as error:
        path.unlink(missing_ok=True)
        log.info("the sealed run is not kept: %s", error)
        return False
    return True


def forget_seal(folder: Path) -> None:
    """Remove the seal and its copy, before any sealed file is changed: the folder is no result any more."""
    for name in (SEAL_COPY, SEAL):
        (folder / name).unlink(missing_ok=True)


def _changed(before: object, now: Mapping[str, Any]) -> list[str]:
    """The names of the fields in which `now` differs from what was noted."""
    noted = before if isinstance(before, dict) else {}
    return [name for name, value in now.items() if name not in noted or noted[name] != value]
