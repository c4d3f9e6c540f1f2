"""The table of the study of trainers: a line for each cell, as `trainers.csv` holds it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_json
from ckptbench.config.trainers import COLUMNS
from ckptbench.trainers.trainer import Row

COSTS = ("stall_s", "slowdown_s", "file_bytes", "state_bytes", "memory_bytes")


@dataclass(frozen=True, slots=True)
class Line:
    """A cell of the table. Costs are of one save: the time that training stands still, by how much steps beside it are slower, the bytes of its files and of the state, and the memory that it takes; None where not measured."""

    row: str
    title: str
    control: str
    column: str
    verdict: str
    words: str
    promise: str
    source: str
    """Of the promise."""
    command: str
    versions: str
    date: str
    seconds: float
    stall_s: float | None
    slowdown_s: float | None
    file_bytes: float | None
    state_bytes: float | None
    memory_bytes: float | None


def lines(rows: Iterable[Row], cells: Mapping[tuple[str, str], Path]) -> list[Line]:
    """`cells`: the files of the answers, by the name of the row and the check."""
    found = []
    for row in rows:
        contents = [read_json(path) for (name, _), path in cells.items() if name == row.name]
        own = [_line(row, content, answer) for content in contents for answer in content["answers"]]
        found += sorted(own, key=lambda line: [*COLUMNS].index(line.column))
    return found


def _line(row: Row, content: Mapping[str, Any], answer: Mapping[str, Any]) -> Line:
    promise = row.trainer.promises.get(answer["column"])
    return Line(
        row=row.name,
        title=row.title,
        control=row.trainer.control,
        column=answer["column"],
        verdict=answer["verdict"],
        words=answer["words"],
        promise=promise.text if promise else "",
        source=promise.source if promise else "",
        command=answer["command"],
        versions=" ".join(f"{name} {version}" for name, version in content["versions"].items()),
        date=content["date"],
        seconds=round(answer["seconds"], 1),
        **{name: answer["costs"].get(name) for name in COSTS},
    )


def write(path: Path, table: Sequence[Line]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [one.name for one in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(line) for line in table)


def read(path: Path) -> list[Line]:
    """Raises RunFolderError where it is no such table."""
    numbers = ("seconds", *COSTS)
    with path.open(encoding="utf-8", newline="") as file:
        found = csv.DictReader(file)
        if [*(found.fieldnames or ())] != [one.name for one in fields(Line)]:
            raise RunFolderError(f"{path}: its columns are those of another version: make it again")
        return [
            Line(**{name: (float(text) if text else None) if name in numbers else text for name, text in line.items()})  # type: ignore[arg-type]
            for line in found
        ]  # fmt: skip


def ordered(table: Sequence[Line]) -> dict[str, dict[str, Line]]:
    """By row and column: the trainers by title, then the controls, the right one first."""
    found: dict[str, dict[str, Line]] = {}
    for line in sorted(table, key=lambda line: (line.control, line.title.lower(), line.row)):
        found.setdefault(line.row, {})[line.column] = line
    return found
