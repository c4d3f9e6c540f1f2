"""How far the study is: cells done, running and left, and when it is expected to end."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckptbench.errors import RunFolderError
from ckptbench.manifest import MANIFEST, SEAL, read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a study, from its run folders alone."""

    done: int
    left: int
    """Cells that are neither done nor running."""
    seconds_left: float | None
    """None until a first run has ended."""

    def line_among_others(self, running: str) -> str:
        """On a cluster, where nobody knows how many runs go on beside this one."""
        return f"cells: {self.done} done, {self.left + 1} to do or running, among them {running}"

    def line(self, running: str, now: datetime.datetime) -> str:
        """Where one run goes on at a time."""
        end = "unknown until the first run has ended"
        if self.seconds_left is not None:
            end = f"{now + datetime.timedelta(seconds=self.seconds_left):%Y-%m-%d %H:%M}"
        return (
            f"cells: {self.done} done, 1 running ({running}), {self.left} left; expected end: {end}"
        )


def measure(runs: Path, cell_ids: Sequence[str], running: str) -> Progress:
    """The progress of the study of these cells while `running` runs.

    A cell is expected to take as long as the mean of the runs that are most like it: an id is ordered from what
    matters most to time (framework, model, dataset, ranks) to what matters least, so the longest shared
    beginning of the ids decides.
    """
    durations = {cell_id: _duration(runs / cell_id) for cell_id in cell_ids if cell_id != running}
    done = {cell_id: seconds for cell_id, seconds in durations.items() if seconds is not None}
    to_do = [running, *(cell_id for cell_id in durations if cell_id not in done)]
    return Progress(
        done=len(done),
        left=len(to_do) - 1,
        seconds_left=sum(_expected(cell_id, done) for cell_id in to_do) if done else None,
    )


def _duration(folder: Path) -> float | None:
    if not (folder / SEAL).exists():
        return None
    try:
        return float(read_json(folder / MANIFEST)["duration_s"])
    except (RunFolderError, KeyError):  # a spoilt folder is told of where it is read as a result
        return None


def _expected(cell_id: str, done: dict[str, float]) -> float:
    parts = cell_id.split("-")

    def likeness(other: str) -> int:
        pairs = zip(parts, other.split("-"), strict=False)
        return next((n for n, (mine, its) in enumerate(pairs) if mine != its), len(parts))

    nearest = max(likeness(other) for other in done)
    alike = [seconds for other, seconds in done.items() if likeness(other) == nearest]
    return sum(alike) / len(alike)
