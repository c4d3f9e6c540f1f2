"""How far the study is: cells done, running and left, and when it is expected to end."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence

from ckptbench.matrix.cell import Cell


def progress_line(
    cells: Sequence[Cell],
    running: Cell,
    durations: Mapping[Cell, float | None],
    now: datetime.datetime | None,
) -> str:
    """The line of a run's log. `durations`: seconds of every run that is done; None where they are unknown.

    `now` is None on a cluster: how many other runs go on there at the same time is unknown.
    """
    done = len(durations)
    left = [cell for cell in cells if cell != running and cell not in durations]
    if now is None:
        return f"cells: {done} done, {len(left) + 1} to do or running, among them {running.id}"
    known = {cell: seconds for cell, seconds in durations.items() if seconds is not None}
    end = "unknown until the first run has ended"
    if known:
        seconds_left = sum(_expected(cell, known) for cell in (running, *left))
        end = f"{now + datetime.timedelta(seconds=seconds_left):%Y-%m-%d %H:%M}"
    return f"cells: {done} done, 1 running ({running.id}), {len(left)} left; expected end: {end}"


def _expected(cell: Cell, known: Mapping[Cell, float]) -> float:
    """The mean time of the runs that are most like the cell.

    The fields of a cell are in the order in which they matter to time (framework, model, dataset, ranks...): of two runs
    the one that agrees with the cell in more of the first fields is more like it.
    """
    alike = {other: _fields_in_common(cell, other) for other in known}
    nearest = [known[other] for other in known if alike[other] == max(alike.values())]
    return sum(nearest) / len(nearest)


def _fields_in_common(cell: Cell, other: Cell) -> int:
    """The number of first fields in which both agree."""
    names = [field.name for field in dataclasses.fields(cell)]
    agree = [getattr(cell, name) == getattr(other, name) for name in names]
    return [*agree, False].index(False)
