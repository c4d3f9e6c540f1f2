"""How far the study is: cells done, running and left, and when it is expected to end."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckptbench.errors import RunFolderError
from ckptbench.machine.files import read_json
from ckptbench.matrix.cell import Cell
from ckptbench.runs.layout import MANIFEST, SEAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a study is, by its run folders."""

    done: int
    left: int
    """Cells that are neither done nor running."""
    seconds_left: float | None
    """None until a first run has ended."""

    def line_among_others(self, running: str) -> str:
        """The line on a cluster. How many other runs go on there at the same time is unknown."""
        return f"cells: {self.done} done, {self.left + 1} to do or running, among them {running}"

    def line(self, running: str, now: datetime.datetime) -> str:
        """The line on one machine, where one run goes on at a time."""
        end = "unknown until the first run has ended"
        if self.seconds_left is not None:
            end = f"{now + datetime.timedelta(seconds=self.seconds_left):%Y-%m-%d %H:%M}"
        return (
            f"cells: {self.done} done, 1 running ({running}), {self.left} left; expected end: {end}"
        )


def measure(runs: Path, cells: Sequence[Cell], running: Cell) -> Progress:
    """The progress of the study of these cells while `running` runs.

    A cell is expected to take as long as the mean of the runs that are most like it. The fields of a cell are in the
    order in which they matter to time (framework, model, dataset, ranks...): of two runs the one that agrees with the
    cell in more of the first fields is more like it.
    """
    others = [cell for cell in cells if cell != running]
    done = [cell for cell in others if (runs / cell.id / SEAL).exists()]
    to_do = [running, *(cell for cell in others if cell not in done)]
    seconds = {cell: each for cell in done if (each := _duration(runs / cell.id)) is not None}
    return Progress(
        done=len(done),
        left=len(to_do) - 1,
        seconds_left=sum(_expected(cell, seconds) for cell in to_do) if seconds else None,
    )


def _duration(folder: Path) -> float | None:
    """Of a run that has ended; None where it is unknown, or no duration."""
    try:
        seconds = float(read_json(folder / MANIFEST)["duration_s"])
        return seconds if seconds >= 0 else None
    except (
        RunFolderError,
        KeyError,
        TypeError,
        ValueError,
    ):  # reading it as a result says what is wrong
        return None


def _expected(cell: Cell, done: Mapping[Cell, float]) -> float:
    alike = {other: _likeness(cell, other) for other in done}
    nearest = max(alike.values())
    seconds = [done[other] for other, likeness in alike.items() if likeness == nearest]
    return sum(seconds) / len(seconds)


def _likeness(cell: Cell, other: Cell) -> int:
    """The number of first fields in which both agree."""
    names = [field.name for field in dataclasses.fields(cell)]
    agree = (getattr(cell, name) == getattr(other, name) for name in names)
    return sum(1 for _ in itertools.takewhile(bool, agree))
