"""The jobs of a cluster as Slurm's `sacct --parsable2` prints them, or as a CSV file of the same columns.

Read are `State`, `End`, `Elapsed` (or `ElapsedRaw`) and `AllocTRES`, and where they are there `JobID` and `Start`. The time that jobs ran is that of
`Elapsed`: a clock that is set back in autumn does not change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from ckptbench.common.errors import DataError
from ckptbench.decide.exposure import (
    ENDS,
    FAILURE_STATES,
    OUTSIDE,
    TIMEOUT,
    WILLED,
    EndsOfJobs,
    Exposure,
    Floats,
)
from ckptbench.decide.failure_file import FailureFile
from ckptbench.decide.log_table import LogTable
from ckptbench.decide.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

COLUMNS = "JobID,State,Start,End,Elapsed,AllocTRES"
ASK = f"sacct --allusers --allocations --duplicates --parsable2 --starttime=2026-01-01 --format={COLUMNS} (without --allusers, only your own jobs)"
UNKNOWN = ("", "unknown", "none")
"""What sacct prints for the end of a job that still runs, and for the start of one that has not begun."""
STATE = r"([A-Z_]{3,})\+?(?: by .*)?"
"""`CANCELLED by 1000` says a user. Short forms, as NF, are of squeue."""
ELAPSED = r"(?:(\d{1,6})-)?(\d{1,9}):(\d\d):(\d\d)(?:\.\d+)?|(\d{1,12})"
"""Days, hours, minutes and seconds; of `ElapsedRaw` seconds."""
GPUS = re.compile(r"gres/gpu(:[^=,]+)?=(\d{1,7})(?:,|$)")
"""Of one kind of GPU, or of all."""
MOST_SHOWN = 3
OF_JOBS = ("PREEMPTED", TIMEOUT, "DEADLINE")
"""States that may strike a job of many GPUs no more often than one of few."""
OWN_ERRORS = ("FAILED", "OUT_OF_MEMORY")
"""States of jobs whose program ended by itself: soon after the start mostly for an error in it."""
LEAST_LOST_S = 7 * SECONDS_PER_DAY
"""A job that runs for less is believed to run."""


def is_of_jobs(table: LogTable) -> bool:
    """Whether its columns are those of jobs, and not those of a list of failures."""
    return table.has("State") and any(map(table.has, ("JobID", "Elapsed", "End", "AllocTRES")))


def read_jobs(table: LogTable, file: FailureFile, *, with_limit: bool = False) -> Exposure:
    """Failures and GPU-hours of all jobs that had GPUs. Raises DataError.

    Where `gpus`, `from` and `to` say which GPUs were watched and when, these are the GPU-hours, and the table says the failures alone.
    """
    jobs = _jobs(table, file)
    doubts = table.doubts()
    no_gpus = f"{table.path}: no job had a GPU (AllocTRES would show gres/gpu=8): where Slurm counts no GPUs, leave this column out, and give gpus, from and to in a YAML file"
    if table.text("AllocTRES").str.contains(r"\+$").any() and not jobs["gpus"].any():
        raise DataError(f"{table.path}: AllocTRES is cut off (+): print it whole by {ASK}")
    if len(jobs) and table.has("AllocTRES") and not jobs["gpus"].any():
        raise DataError(no_gpus)
    if (given := _given(file)) is not None:
        clock_s, gpu_hours = given
    else:
        jobs = jobs[(jobs["gpus"] > 0) & ((jobs["elapsed_s"] > 0) | jobs["has_failed"])]
        jobs, lost = _without_lost_ends(jobs, file)
        doubts += lost
        if not (jobs["elapsed_s"] > 0).any():
            raise DataError(no_gpus)
        clock_s, gpu_hours = _watched(jobs, file)
    within = jobs[(clock_s[0] < jobs["end_s"]) & (jobs["end_s"] <= clock_s[-1])]
    inside = within[within["has_failed"]]
    doubts += (
        *_left_out(within, file, with_limit=with_limit),
        *_soon(inside, file),
    )
    return Exposure(
        inside["end_s"].to_numpy(float),
        clock_s,
        gpu_hours,
        is_of_failures_alone=given is None and bool(jobs["has_failed"].all()),
        doubts=doubts,
        of_jobs=_of_jobs(inside, jobs, file, float(gpu_hours[-1])),
    )


def read_gpus(table: LogTable, file: FailureFile) -> list[tuple[int, float]]:
    """As `failure_log.gpus_of_jobs`."""
    jobs = _jobs(table, file)
    ran_s = jobs[jobs["gpus"] > 0].groupby("gpus")["elapsed_s"].sum().sort_values(ascending=False)
    parts = zip(ran_s.index.tolist(), (ran_s / ran_s.sum()).tolist(), strict=True)
    return [(gpus, part) for gpus, part in parts if part > 0]


def _jobs(table: LogTable, file: FailureFile) -> pd.DataFrame:
    """One row per time that a job ran: from one start to one end. Of lines that say the same one twice, that which saw more of it."""
    end_column, is_given = file.column or "End", _given(file) is not None
    needed = ("State", end_column, *(() if is_given else ("Elapsed", "AllocTRES")))
    if missing := [name for name in needed if not table.has(name)]:
        other = (
            ""
            if is_given
            else ", or give gpus, from and to in a YAML file, as config/failures/example has"
        )
        raise DataError(
            f"{table.path}: line {table.first}: there is no column {' and no column '.join(missing)}: ask for them by {ASK}{other}"
        )
    table.rows = table.rows[~table.text("JobID").str.contains(".", regex=False)]  # steps
    state = table.text("State").str.extract(f"^{STATE}$")[0]
    table.fault(state.isna(), "State", "use a state of Slurm, as COMPLETED, or remove the line")
    start, end = table.text("Start"), table.text(end_column)
    begins, ends = (~each.str.lower().isin(UNKNOWN) for each in (start, end))
    gpus, elapsed_s = _gpus(table), _elapsed_s(table, needed=begins & (not is_given))
    has_failed = state.isin(file.states) & ((gpus > 0) | (not table.has("AllocTRES")))
    table.fault(has_failed & ~ends, end_column, "but it has failed: say when, or remove the line")
    ran = ~begins & ~ends & (elapsed_s > 0) & (gpus > 0) & (not is_given)
    table.fault(ran, end_column, "but it ran: ask for Start too, or remove the line")
    still_s = table.seconds("Start", where=begins & ~ends) + elapsed_s  # it still runs
    end_s = table.seconds(end_column, where=ends).fillna(still_s)
    if is_given:
        table.fault(has_failed & end_s.notna() & ~file.spans(end_s), end_column, OUTSIDE)
    jobs = pd.DataFrame({
        "job": table.text("JobID"), "begin": start.where(start != "", end), "end_s": end_s, "elapsed_s": elapsed_s,
        "gpus": gpus, "has_elapsed": table.text("Elapsed") != "", "has_failed": has_failed, "is_running": begins & ~ends, "state": state,
    })[table.readable].dropna(subset="end_s")  # fmt: skip
    jobs["job"] = jobs["job"].where(jobs["job"] != "", jobs.index.astype(str))
    seen_most = jobs.sort_values("elapsed_s", kind="stable")
    return seen_most.drop_duplicates(["job", "begin"], keep="last").sort_index()


def _elapsed_s(table: LogTable, needed: pd.Series[bool]) -> pd.Series[float]:
    texts = table.text("Elapsed")
    wrong = ~texts.str.fullmatch(ELAPSED) & ((texts != "") | needed)
    words = "use days-hours:minutes:seconds, as in 1-02:30:00, or remove the line"
    table.fault(wrong, "Elapsed", words)
    parts = texts.str.extract(f"^(?:{ELAPSED})$").astype(float).fillna(0.0)
    return parts.dot([SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE, 1.0, 1.0])


def _gpus(table: LogTable) -> pd.Series[int]:
    """`gres/gpu=8`, or else all `gres/gpu:a100=8` together."""

    def number(text: str) -> int:
        found = [(kind, int(number)) for kind, number in GPUS.findall(text)]
        return next((all_ for kind, all_ in found if not kind), sum(each for _, each in found))

    texts = table.text("AllocTRES")
    wrong = texts.str.contains("gres/gpu[:=]") & ~texts.map(lambda text: bool(GPUS.search(text)))
    table.fault(wrong, "AllocTRES", "use a number of GPUs, as in gres/gpu=8")
    return texts.map(number).astype(int)


def _without_lost_ends(jobs: pd.DataFrame, file: FailureFile) -> tuple[pd.DataFrame, tuple[str, ...]]:  # fmt: skip
    """Without jobs of which Slurm has lost the end: they run for ever in its accounting. And a sentence on them."""
    ended = jobs[~jobs["is_running"]]
    longest_s = ended["elapsed_s"].max()
    begin_s = ended["end_s"].min() if file.begin is None else file.begin
    began_s = jobs["end_s"] - jobs["elapsed_s"]
    is_old = (jobs["elapsed_s"] > longest_s) | (began_s < 2 * begin_s - jobs["end_s"].max())
    is_old &= jobs["elapsed_s"] > LEAST_LOST_S
    lost = jobs[jobs["is_running"] & is_old & (len(ended) > 0)]
    if lost.empty:
        return jobs, ()
    return jobs.drop(lost.index), (
        f"{_named(lost)} still RUNNING longer than any ended job ({longest_s / SECONDS_PER_DAY:.3g} days), or since long before "
        "them: not counted, as Slurm may have missed their end (`sacctmgr show runawayjobs`); if they do run, give gpus, from and to in a YAML file",
    )


def _named(jobs: pd.DataFrame) -> str:
    number = len(jobs)
    names = ", ".join(map(str, jobs["job"][:MOST_SHOWN])) + ", ..." * (number > MOST_SHOWN)
    return f"{number:,} job{'s' * (number != 1)} ({names})"


def _of_jobs(
    failed: pd.DataFrame, jobs: pd.DataFrame, file: FailureFile, gpu_hours: float
) -> EndsOfJobs | None:
    """Preemptions and time limits. None where there are none, or where no job's GPUs are known."""
    numbers = failed.loc[failed["state"].isin(OF_JOBS), "state"].value_counts()
    ran_s = float(jobs.loc[jobs["gpus"] > 0, "elapsed_s"].sum())
    of_job = float((jobs["elapsed_s"] * jobs["gpus"]).sum()) / ran_s if ran_s else file.gpus
    if numbers.empty or not of_job:
        return None
    number = int(numbers.sum())
    return EndsOfJobs(
        named=", ".join(f"{number:,} {state}" for state, number in numbers.items()),
        number=number,
        of=len(failed),
        gpus=of_job,
        every_hours=gpu_hours / of_job / number,
    )


def _left_out(jobs: pd.DataFrame, file: FailureFile, *, with_limit: bool) -> Iterator[str]:
    """A sentence on jobs that something else than a failure has ended, and on how to count them."""
    counted = {*file.states, *FAILURE_STATES, *WILLED, *[TIMEOUT] * with_limit}
    ended = jobs[~jobs["is_running"] & jobs["state"].isin(ENDS) & ~jobs["state"].isin(counted)]
    numbers = ended["state"].value_counts()
    if numbers.empty:
        return
    named = ", ".join(f"{number:,} {state}" for state, number in numbers.items())
    add = _options(numbers.index, file) if file.log is None else "them to `states`"
    yield f"not counted: {named}; if your training restarts after those, add {add}"


def _options(states: Iterable[str], file: FailureFile) -> str:
    """Of `decide`, to count these states too. The ends at a time limit come at known times, so they are no failures."""
    more = [state for state in file.states if state not in FAILURE_STATES]
    others = [state for state in states if state != TIMEOUT]
    count = [f"--count {','.join([*more, *others])}"] if others else []
    return " and ".join(count + [f"--limit 24h for {TIMEOUT}"] * (TIMEOUT in states))


def _soon(failed: pd.DataFrame, file: FailureFile) -> Iterator[str]:
    """A sentence on failures that a typo in a script may be."""
    ran = failed["elapsed_s"] < file.restart_s
    soon = failed[ran & failed["state"].isin(OWN_ERRORS) & failed["has_elapsed"]]
    if len(soon):
        yield (
            f"{_named(soon)} failed sooner than a restart takes ({file.restart_minutes:.3g} min), perhaps by an error in a script: counted; "
            f"remove {'its line' if len(soon) == 1 else 'their lines'} if it was"
        )


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
