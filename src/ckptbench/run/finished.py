"""What a finished run was made from: whether it is the run that is asked for, and whether its seal can be restored.

Snakemake takes a job for unfinished if it did not see its end, because it was killed just after the seal, or interrupted
alone. It then removes the output of the job, `seal.json`, and starts the job again. Of a run that was sealed,
`seal-copy.json` is still there. It was written just before the seal.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_shaped, write_json
from ckptbench.common.remedies import blame
from ckptbench.common.removal import try_to_remove
from ckptbench.run.identity import training_fields
from ckptbench.run.layout import SEAL, SEAL_COPY
from ckptbench.run.plan import RunSpec
from ckptbench.run.seal import Seal, verify_seal

log = logging.getLogger(__name__)


class _SealCopy(TypedDict):
    """The content of `seal-copy.json`."""

    seal: Seal
    made_from: dict[str, Any] | None


def made_from(
    spec: RunSpec, *, environment_sha256: str | None, levels: Mapping[str, str | None]
) -> dict[str, Any]:
    """What the run is made from, as JSON: a repetition with all of it equal would be the same run once more.

    That is what makes its training, where its checkpoints go, and what carries it out. `environment_sha256` is that of the environment's
    `ready.json`, None where it has none. `levels` are the folders of local tiers that the config names, by its fields.
    """
    folder, here = spec.checkpoint_folder, Path.cwd()
    return {
        **training_fields(
            spec.cell.to_json(),
            dataclasses.asdict(spec.training),
            spec.dataset_sha256,
            spec.lock_sha256,
        ),
        # Below the study it is named from there: a copy of the study elsewhere is the same study.
        "checkpoint_folder": str(
            folder.relative_to(here)
            if isinstance(folder, Path) and folder.is_relative_to(here)
            else folder
        ),
        "listed": [failure.to_json() for failure in spec.listed],
        "environment_sha256": environment_sha256,
        **{f"checkpoints.{name}": path for name, path in levels.items()},
    }


def restore_seal(folder: Path, made_from: Mapping[str, Any]) -> bool:
    """Write the removed seal again if the folder still is the result of the run that would be made from `made_from`.

    `made_from` is JSON, as it was given to `seal`. No sealed file may have changed. Returns whether the folder is a
    result again. False also if the seal is still there: then nobody has removed it, and the run is wanted once more.
    """
    path = folder / SEAL
    if path.exists() or not (folder / SEAL_COPY).exists():
        return False
    try:
        copy = read_shaped(folder / SEAL_COPY, _SealCopy)
        changed = _changed(copy["made_from"], made_from)
        if changed:
            log.info("the sealed run is not kept: changed since then: %s", ", ".join(changed))
            return False
        write_json(path, dict(copy["seal"]))
        verify_seal(folder)
    except RunFolderError as error:
        path.unlink(missing_ok=True)
        log.info("the sealed run is not kept: %s", error)
        return False
    return True


def has_sealed(folder: Path) -> bool:
    """Whether the last run in the folder was sealed, by the copy of its seal."""
    try:
        read_shaped(folder / SEAL_COPY, _SealCopy)
    except RunFolderError:
        return False
    return True


def forget_seal(folder: Path) -> None:
    """Remove the seal and its copy, before any sealed file is changed: the folder is no result any more.

    Raises RunFolderError if one cannot be removed.
    """
    for name in (SEAL_COPY, SEAL):
        if error := try_to_remove(folder / name):
            raise RunFolderError(
                f"{folder / name} of an earlier run cannot be removed: {blame(error, folder / name, 'remove it')}"
            ) from error


def _changed(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    """The names of the fields in which `now` differs from what was noted. A field that was not noted was None.

    Another version of ckptbench is no difference: whoever reads the files of a run checks whether it can.
    """
    noted = before or {}
    return [name for name, value in now.items() if noted.get(name) != value]
