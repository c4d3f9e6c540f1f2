"""A log of failures: a list of times, or a table of the jobs that Slurm accounts for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ckptbench.common.errors import DataError
from ckptbench.decide.exposure import ENDS, OUTSIDE, Exposure, FailureCount
from ckptbench.decide.failure_file import FailureFile
from ckptbench.decide.log_table import CORRECT, LogTable, read_table
from ckptbench.decide.sacct import ASK, is_of_jobs, read_gpus, read_jobs
from ckptbench.decide.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ckptbench.matrix.shown import show

LEAST = 1e-9
"""Of the time that was watched: less is a rounding error."""
LONGEST_S = 50 * 365.25 * SECONDS_PER_DAY
"""Of a log: longer ones mix seconds from a start of their own with dates."""
COLUMN = "time"
"""The column of the times of a list."""
SHOWN_NAMES = 5


def count_failures(path: Path, file: FailureFile, *, with_limit: bool = False) -> FailureCount:
    """The failures of a log. Raises DataError with the first line that is wrong, and what to do."""
    remedy = CORRECT if file.log else "name another file"
    table = read_table(path, file.column or COLUMN, remedy)
    of_jobs = is_of_jobs(table)
    watched = read_jobs(table, file, with_limit=with_limit) if of_jobs else _read_list(table, file)
    if watched.clock_s[-1] - watched.clock_s[0] > LONGEST_S:
        raise DataError(f"{path}: it lasts more than 50 years: write all times in the same way, with `from` and `to` in seconds or as dates")  # fmt: skip
    counted = watched.counted(file.restart_s)
    if counted.risk_gpu_hours <= LEAST * counted.watched_gpu_hours:
        words = "all of its time is within one restart of a failure: give a longer log"
        if counted.watched_gpu_hours <= 0 and (file.begin is not None or file.end is not None):  # fmt: skip
            words = "no GPU was watched from `from` to `to`: correct them"
        raise DataError(f"{path}: it gives no rate, as {words}")
    return counted


def gpus_of_jobs(path: Path) -> list[tuple[int, float]]:
    """On how many GPUs the jobs ran, and in which part of their time, the largest first. Empty for a log that does not say it. Raises DataError."""
    table = read_table(path, COLUMN, "name another file")
    file = FailureFile.model_construct(None, title=path.name, counts="")
    return read_gpus(table, file) if is_of_jobs(table) else []


def _read_list(table: LogTable, file: FailureFile) -> Exposure:
    """The times of the failures of one system."""
    column = file.column or COLUMN
    if table.names[0].startswith(("{", "[")):
        raise DataError(f"{table.path}: line {table.first}: this is JSON, not a table: print the jobs by {ASK}")  # fmt: skip
    if not table.has(column):
        _check_names(table)
        more = len(table.names) - SHOWN_NAMES
        named = ", ".join(map(show, table.names[:SHOWN_NAMES])) + f" and {more} more" * (more > 0)
        raise DataError(
            f"{table.path}: line {table.first}: there is no column {show(column)} among {named}: begin the file with a line of names, of "
            f"which one is {COLUMN}, or what `column` in a YAML file says; for jobs of Slurm, take the output of {ASK}"
        )
    at_s = table.seconds(column, where=table.readable)
    table.fault(at_s.notna() & ~file.spans(at_s), column, OUTSIDE)
    doubts, at_s = table.doubts(), at_s[table.readable]
    if "states" in file.model_fields_set:
        raise DataError(f"{table.path}: a list of failures has no states: leave out {'`states`' if file.log else '--count'}")  # fmt: skip
    unknown = [name for name, end in (("from", file.begin), ("to", file.end)) if end is None]
    needed = (unknown if len(at_s) < len(unknown) else []) + ["gpus"] * (file.gpus is None)
    if needed or file.gpus is None:
        raise DataError(
            f"{table.path}: a list of {len(at_s)} failure{'s' * (len(at_s) != 1)} does not say how long how many GPUs were watched: give {', '.join(needed)} in a YAML file, as config/failures/example has"
        )
    begin = at_s.min() if file.begin is None else file.begin
    clock_s = np.array([begin, at_s.max() if file.end is None else file.end])
    gpu_hours = (clock_s - begin) * file.gpus / SECONDS_PER_HOUR
    return Exposure(np.array([*at_s]), clock_s, gpu_hours, doubts=doubts)


def _check_names(table: LogTable) -> None:
    """Raises DataError for a table of sacct that is one in part."""
    where = f"{table.path}: line {table.first}"
    if not {name.upper() for name in table.names}.isdisjoint(ENDS):
        raise DataError(f"{where}: this is a job, not the names of the columns: leave out --noheader, as in {ASK}")  # fmt: skip
    if "JobID" in table.names[0]:
        raise DataError(f"{where}: the columns of this table of sacct cannot be separated: print it by {ASK}")  # fmt: skip
