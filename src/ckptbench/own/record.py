"""What is on disk of a study of an own training: its cells, and of each run how it was made and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.common.errors import ConfigError, RunFolderError
from ckptbench.common.files import file_sha256, is_inside, read_json, read_shaped, write_json
from ckptbench.config.record import Record
from ckptbench.own.cell import OwnCell

FORMAT = 1
RUN, PROBE, OUTPUT, SEAL = "run.json", "probe", "output.txt", "seal.json"
SUMMARY = "summary.json"
"""Of the probe, in its folder."""
TRACES = "trace-*.jsonl"
"""Of the probe, beside it: one of each process."""


@dataclass(frozen=True, kw_only=True)
class OwnStudy(Record):
    """`results/own/study.json`: what the workflow writes when it starts."""

    cells: tuple[OwnCell, ...]
    """In the order to run them."""
    keep: bool = False
    """Whether checkpoints stay."""

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "cells": [cell.to_json() for cell in self.cells]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        return cls(**{**content, "cells": tuple(map(OwnCell.from_json, content["cells"]))})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRun:
    """A run that is complete."""

    cell: OwnCell
    folder: Path
    content: Mapping[str, Any]
    """Of run.json: `command`, `folder`, `exit_code`, `wall_s` (of the command, with its start), `started_unix_s`, `ended_unix_s`,
    `measured_on` (cpu or gpu), `host` (a mapping, with `cores` and `scheduler_job`), `others` and `stolen` (shares of the CPU time of
    its machine that other programs and the host took; null where they are unknown, `others` in every job of a scheduler), `checkpoints` (how many were seen)."""
    summary: Mapping[str, Any]
    """That of the probe."""


def read_run(folder: Path) -> OwnRun:
    """Raises RunFolderError if the run is not complete, or one of its files was changed since."""
    if not (folder / SEAL).exists():
        raise RunFolderError(
            f"{folder}: not a result: the run did not end (no {SEAL}); run the study again to finish it"
        )
    for name, sha256 in _sealed(folder).items():
        path = folder / name
        if not path.is_file() or file_sha256(path) != sha256:
            raise RunFolderError(
                f"{path} is missing or was changed after the run; remove {folder} to make it again"
            )
    content = read_json(folder / RUN)
    try:
        cell = OwnCell.from_json(content["cell"])
    except (ConfigError, KeyError) as error:
        raise RunFolderError(
            f"{folder / RUN}: it names no cell of this version ({error}); run the study again, which writes it anew"
        ) from error
    summary = read_json(folder / PROBE / SUMMARY)
    return OwnRun(cell=cell, folder=folder, content=content, summary=summary)


def _sealed(folder: Path) -> dict[str, str]:
    """The checksum of each sealed file. Raises RunFolderError where the seal is not of a run."""
    path = folder / SEAL
    try:
        sealed = read_shaped(path, dict[str, str])
    except RunFolderError as error:
        raise RunFolderError(f"{error}; remove {folder} to make it again") from error
    if outside := [name for name in sealed if not is_inside(name)]:
        raise RunFolderError(
            f"{path} is not of this run: it names {outside[0]!r}, which is no file in it; remove {folder} to make it again"
        )
    return sealed


def seal(folder: Path) -> None:
    """Make the folder a result. Call it after all other files are written."""
    traces = sorted(folder.glob(f"{PROBE}/{TRACES}"))
    names = [RUN, f"{PROBE}/{SUMMARY}", *(f"{PROBE}/{trace.name}" for trace in traces)]
    write_json(folder / SEAL, {name: file_sha256(folder / name) for name in names})


def made_from(folder: Path) -> dict[str, Any] | None:
    """The fields of the cell that the complete run in the folder was made from. None where there is none."""
    try:
        content = read_json(folder / RUN)
    except RunFolderError:
        return None
    cell = content.get("cell")
    is_whole = content.get("format") == FORMAT and content.get("status") == "complete"
    is_measured = (folder / PROBE / SUMMARY).is_file()
    return cell if is_whole and is_measured and isinstance(cell, dict) else None


def check_asked(folder: Path, cell: OwnCell) -> None:
    """Raises RunFolderError where the complete run was made from something else than the cell is now."""
    noted, wanted = made_from(folder) or {}, cell.to_json()
    if changed := [name for name in {**wanted, **noted} if noted.get(name) != wanted.get(name)]:
        raise RunFolderError(
            f"{folder} was made with another {', '.join(changed)} than own has now; remove it to make it again"
        )
