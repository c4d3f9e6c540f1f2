"""The jobs of a cluster as Slurm's `sacct --parsable2` prints them, or as a CSV file of the same columns.

Read are `State`, `End`, `Elapsed` (or `ElapsedRaw`) and `AllocTRES`, and where they are there `JobID` and `Start`. The time that jobs ran is that of
`Elapsed`: a clock that is set back in autumn does not change it.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from ckptbench.common.errors import DataError
from ckptbench.decide.failure_file import FailureFile
from ckptbench.decide.log_table import LogTable
from ckptbench.decide.lost_ends import without_lost_ends
from ckptbench.decide.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ckptbench.decide.watched import OUTSIDE, Floats, Watched

COLUMNS = "JobID,State,Start,End,Elapsed,AllocTRES"
ASK = f"sacct --allusers --allocations --duplicates --parsable2 --starttime=2026-01-01 --format={COLUMNS}"
UNKNOWN = ("", "unknown", "none")
"""What sacct prints for the end of a job that still runs, and for the start of one that has not begun."""
STATE = r"([A-Z_]{3,})\+?(?: by .*)?"
"""`CANCELLED by 1000` says a user. Short forms, as NF, are of squeue."""
ELAPSED = r"(?:(\d{1,6})-)?(\d{1,9}):(\d\d):(\d\d)(?:\.\d+)?|(\d{1,12})"
"""Days, hours, minutes and seconds; of `ElapsedRaw` seconds."""
GPUS = re.compile(r"gres/gpu(:[^=,]+)?=(\d{1,7})(?:,|$)")
"""Of one kind of GPU, or of all."""


def is_of_jobs(table: LogTable) -> bool:
    """Whether its columns are those of jobs, and not those of a list of failures."""
    return table.has("State") and any(map(table.has, ("JobID", "Elapsed", "End", "AllocTRES")))


def read_jobs(table: LogTable, file: FailureFile) -> Watched:
    """Failures and GPU-hours of all jobs that had GPUs. Raises DataError.

    Where `gpus`, `from` and `to` say which GPUs were watched and when, these are the GPU-hours, and the table says the failures alone.
    """
    jobs = _jobs(table, file)
    doubts: tuple[str, ...] = ()
    failed = jobs[jobs["has_failed"]]
    no_gpus = f"{table.path}: no job had a GPU: AllocTRES says so by gres/gpu=8; where Slurm counts no GPUs, leave this column out, and give gpus, from and to in a YAML file"
    if len(jobs) and table.has("AllocTRES") and not jobs["gpus"].any():
        raise DataError(no_gpus)
    if (given := _given(file)) is not None:
        clock_s, gpu_hours = given
    else:
        jobs = jobs[(jobs["gpus"] > 0) & ((jobs["elapsed_s"] > 0) | jobs["has_failed"])]
        jobs, doubts = without_lost_ends(jobs, file)
        if not (jobs["elapsed_s"] > 0).any():
            raise DataError(no_gpus)
        clock_s, gpu_hours = _watched(jobs, file)
    inside = failed[(clock_s[0] < failed["end_s"]) & (failed["end_s"] <= clock_s[-1])]
    return Watched(
        inside["end_s"].to_numpy(float),
        clock_s,
        gpu_hours,
        is_of_failures_alone=given is None and bool(jobs["has_failed"].all()),
        doubts=doubts,
    )


def _jobs(table: LogTable, file: FailureFile) -> pd.DataFrame:
    """One row a time that a job ran: from one start to one end. Of lines that say the same one twice, that which saw more of it."""
    end_column, is_given = file.column or "End", _given(file) is not None
    needed = ("State", end_column, *(() if is_given else ("Elapsed", "AllocTRES")))
    if missing := [name for name in needed if not table.has(name)]:
        other = "" if is_given else ", or give gpus, from and to in a YAML file"
        raise DataError(
            f"{table.path}: line {table.first}: there is no column {' and no column '.join(missing)}: ask for them by {ASK}{other}"
        )
    _check_widths(table)
    table = table.only(~table.column("JobID").str.contains(".", regex=False))  # steps
    states = table.column("State").str.fullmatch(STATE)
    table.refuse(~states, "State", "use a state of Slurm, as COMPLETED, or remove the line")
    state = table.column("State").str.extract(STATE)[0]
    start, end = table.column("Start"), table.column(end_column)
    begins, ends = (~each.str.lower().isin(UNKNOWN) for each in (start, end))
    gpus, elapsed_s = _gpus(table), _elapsed_s(table, needed=begins & (not is_given))
    has_failed = state.isin(file.states) & ((gpus > 0) | (not table.has("AllocTRES")))
    table.refuse(has_failed & ~ends, end_column, "but it has failed: say when, or remove the line")
    ran = ~begins & ~ends & (elapsed_s > 0) & (gpus > 0) & (not is_given)
    table.refuse(ran, end_column, "but it ran: ask for Start too, or remove the line")
    end_s = pd.concat([
        table.seconds(end_column, where=ends),
        table.seconds("Start", where=begins & ~ends) + elapsed_s[begins & ~ends],  # it still runs
    ])  # fmt: skip
    if is_given:
        outside = has_failed & ~file.spans(end_s.reindex(has_failed.index))
        table.refuse(outside, end_column, OUTSIDE)
    jobs = pd.DataFrame({
        "job": table.column("JobID"), "begin": start.where(start != "", end), "end_s": end_s, "elapsed_s": elapsed_s,
        "gpus": gpus, "has_failed": has_failed, "is_running": begins & ~ends,
    }).dropna(subset="end_s")  # fmt: skip
    jobs["job"] = jobs["job"].where(jobs["job"] != "", jobs.index.astype(str))
    seen_most = jobs.sort_values("elapsed_s", kind="stable")
    return seen_most.drop_duplicates(["job", "begin"], keep="last").sort_index()


def _check_widths(table: LogTable) -> None:
    number = len(table.names)
    for line, row in table.rows.items():
        if len(row) < number:
            words = f"it has {len(row)} columns of {number}: complete or remove the line"
            raise table.error(line, words)
        if any(row[number:]):
            words = f"it has {len(row)} columns for {number} names: a cell holds a separator, so leave its column out"
            raise table.error(line, words)


def _elapsed_s(table: LogTable, needed: pd.Series[bool]) -> pd.Series[float]:
    texts = table.column("Elapsed")
    wrong = ~texts.str.fullmatch(ELAPSED) & ((texts != "") | needed)
    words = "use days-hours:minutes:seconds, as in 1-02:30:00, or remove the line"
    table.refuse(wrong, "Elapsed", words)
    parts = texts.str.extract(ELAPSED).astype(float).fillna(0.0)
    return parts.dot([SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE, 1.0, 1.0])


def _gpus(table: LogTable) -> pd.Series[int]:
    """`gres/gpu=8`, or else all `gres/gpu:a100=8` together."""

    def number(text: str) -> int:
        found = [(kind, int(number)) for kind, number in GPUS.findall(text)]
        return next((all_ for kind, all_ in found if not kind), sum(each for _, each in found))

    texts = table.column("AllocTRES")
    wrong = texts.str.contains("gres/gpu[:=]") & ~texts.map(lambda text: bool(GPUS.search(text)))
    table.refuse(wrong, "AllocTRES", "use a number of GPUs, as in gres/gpu=8")
    return texts.map(number).astype(int)


def _given(file: FailureFile) -> tuple[Floats, Floats] | None:
    if file.gpus is None or file.begin is None or file.end is None:
        return None
    clock_s = np.array([file.begin, file.end])
    return clock_s, (clock_s - clock_s[0]) * file.gpus / SECONDS_PER_HOUR


def _watched(jobs: pd.DataFrame, file: FailureFile) -> tuple[Floats, Floats]:
    """The times at which jobs begin and end, and the GPU-hours of all until then. From `from` to `to`, where they are given; else from a second
    before the first begins, in which it may fail too."""
    ends, gpus = jobs["end_s"].to_numpy(float), jobs["gpus"].to_numpy(float)
    clock_s = np.concatenate([ends - jobs["elapsed_s"].to_numpy(float), ends])
    order = np.argsort(clock_s, kind="stable")
    clock_s, running = clock_s[order], np.cumsum(np.concatenate([gpus, -gpus])[order])
    hours = np.diff(clock_s) * running[:-1] / SECONDS_PER_HOUR
    clock_s = np.concatenate([[clock_s[0] - 1], clock_s])
    gpu_hours = np.concatenate([[0.0, 0.0], np.cumsum(hours)])
    if file.begin is None and file.end is None:
        return clock_s, gpu_hours
    begin = clock_s[0] if file.begin is None else file.begin
    end = clock_s[-1] if file.end is None else file.end
    inside = clock_s[(clock_s > begin) & (clock_s < end)]
    cut = np.concatenate([[begin], inside, [end]])
    until = np.interp(cut, clock_s, gpu_hours)
    return cut, until - until[0]
