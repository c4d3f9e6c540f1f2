"""A log of failures: a list of times, or a table of the jobs that Slurm accounts for."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ckptbench.decide.log_faults import Faults, Times
from ckptbench.decide.log_lines import Lines, read_lines
from ckptbench.decide.sacct import ASK, is_table, read_jobs
from ckptbench.decide.units import SECONDS_PER_HOUR
from ckptbench.decide.watched import NODES, Counted, LogOptions, Watched
from ckptbench.errors import DataError
from ckptbench.matrix.shown import show

LEAST = 1e-9
"""Of the time that was watched: less is a rounding error."""
COLUMN = "time"
"""The column of the times of a list."""


def count_failures(path: Path, options: LogOptions) -> Counted:
    """The failures of a log. Raises DataError with a line for each kind of fault: where it is first, what to do, and where else it is."""
    faults = Faults(str(path))
    lines = read_lines(path)
    told = ""
    try:
        watched = (read_jobs if is_table(lines) else _read_list)(lines, options, faults)
    except DataError as error:
        told = str(error)
    if text := "\n".join(filter(None, (faults.text(), told, lines.broken))):
        raise DataError(text)
    assert watched is not None, "without faults all was read"
    counted = watched.counted(options.restart_s)
    if counted.risk_gpu_hours <= LEAST * counted.watched_gpu_hours:
        words = "no time was watched but within one restart of a failure: give a longer log"
        if counted.watched_gpu_hours <= 0 and (options.begin or options.end):
            words = "no GPU was watched from `from` to `to`: correct them"
        raise DataError(f"{path}: it gives no rate, as {words}")
    return counted


def _read_list(lines: Lines, options: LogOptions, faults: Faults) -> Watched | None:
    """The times of the failures of one system. None where it has faults."""
    column = options.column or COLUMN
    place, nodes = lines.place(column), lines.place(*NODES)
    cells = lines.cells
    if place is None and len(lines.names) == 1 and re.search(r"\d", lines.names[0]):
        place, cells = 0, [(lines.first, list(lines.names)), *cells]  # a list without names
    if place is None:
        raise DataError(
            f"{lines.path}: line {lines.first}: there is no column {show(column)} among {lines.named()}: begin the file with a line of names, of "
            f"which one is {COLUMN}, or what `column` in a YAML file says; for jobs of Slurm, take the output of {ASK}"
        )
    times = Times(options, faults)
    failed: list[tuple[float, str]] = []
    for line, row in cells:
        if place >= len(row):
            words = f"it has no column {show(column)}: complete or remove the line"
            faults.add("short", line, words)
        elif (at := times.failed(line, column, row[place])) is not None:
            where = row[nodes] if nodes is not None and nodes < len(row) else ""
            failed.append((at.seconds, where))
    if faults.first:
        return None
    options = times.options
    known = {"from": options.begin, "to": options.end}
    unknown = [name for name, each in known.items() if each is None]
    needed = (unknown if len(failed) < len(unknown) else []) + ["gpus"] * (options.gpus is None)
    if needed or options.gpus is None:
        raise DataError(
            f"{lines.path}: a list of {len(failed)} failure{'s' * (len(failed) != 1)} does not say how long how many GPUs were watched: give {', '.join(needed)} in a YAML file, as config/failures/example has"
        )
    at_s = np.array([at for at, _ in failed])
    begin = options.begin.seconds if options.begin else at_s.min()
    clock_s = np.array([begin, options.end.seconds if options.end else at_s.max()])
    gpu_hours = (clock_s - begin) * options.gpus / SECONDS_PER_HOUR
    return Watched(at_s, clock_s, gpu_hours, [where for _, where in failed])
