"""The jobs of a cluster as Slurm's `sacct --parsable2` prints them, or as a CSV file of the same columns.

Read are `State`, `End`, `Elapsed` (or `ElapsedRaw`) and `AllocTRES`, and where they are there `JobID`, `Start` and `NodeList`. The time that jobs ran is that of
`Elapsed`: a clock that is set back in autumn does not change it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ckptbench.decide.log_faults import Faults, Times
from ckptbench.decide.log_lines import Lines
from ckptbench.decide.units import SECONDS_PER_HOUR
from ckptbench.decide.watched import NODES, Floats, LogOptions, Watched
from ckptbench.errors import DataError
from ckptbench.matrix.shown import show

COLUMNS = "JobID,State,Start,End,Elapsed,AllocTRES,NodeList"
ASK = f"sacct --allusers --allocations --duplicates --parsable2 --starttime=2026-01-01 --format={COLUMNS}"
UNKNOWN = ("", "unknown", "none")
"""What sacct prints for the end of a job that still runs, and for the start of one that has not begun."""
STATE = re.compile(r"([A-Z_]{3,})\+?(?: by .*)?")
"""`CANCELLED by 1000` says a user. Short forms, as NF, are of squeue."""
ELAPSED = re.compile(r"(?:(\d{1,6})-)?(\d{1,9}):(\d\d):(\d\d)(?:\.\d+)?|(\d{1,12})")
"""Days, hours, minutes and seconds; of `ElapsedRaw` seconds."""
GPUS = re.compile(r"gres/gpu(:[^=,]+)?=(\d{1,7})(?:,|$)")


@dataclass(frozen=True, slots=True)
class _Job:
    """A time that a job ran: from one start to one end."""

    end_s: float
    elapsed_s: float
    gpus: int
    has_failed: bool
    nodes: str


def is_table(lines: Lines) -> bool:
    """Whether its columns are those of jobs, and not those of a list of failures."""
    return lines.place("State") is not None and (
        lines.place("JobID", "JobIDRaw", "Elapsed", "ElapsedRaw", "End", "AllocTRES") is not None
    )


def read_jobs(lines: Lines, options: LogOptions, faults: Faults) -> Watched | None:
    """Failures and GPU-hours of all jobs that had GPUs. None where the table has faults.

    Where `gpus`, `from` and `to` say which GPUs were watched and when, these are the GPU-hours, and the table says the failures alone.
    """
    reader = _Reader(lines, options, faults)
    jobs = list(reader.jobs().values())
    if faults.first:
        return None
    failed = [job for job in jobs if job.has_failed]
    no_gpus = f"{lines.path}: no job had a GPU: AllocTRES says so by gres/gpu=8; where Slurm counts no GPUs, leave this column out, and give gpus, from and to in a YAML file"
    if jobs and lines.place("AllocTRES") is not None and not any(job.gpus for job in jobs):
        raise DataError(no_gpus)
    if (given := _given(options)) is not None:
        clock_s, gpu_hours = given
    else:
        jobs = [job for job in jobs if job.gpus and (job.elapsed_s > 0 or job.has_failed)]
        if not any(job.elapsed_s > 0 for job in jobs):
            raise DataError(no_gpus)
        clock_s, gpu_hours = _watched(jobs, reader.times.options)
    inside = [job for job in failed if clock_s[0] < job.end_s <= clock_s[-1]]
    return Watched(
        np.array([job.end_s for job in inside]),
        clock_s,
        gpu_hours,
        [job.nodes for job in inside],
        is_of_failures_alone=given is None and all(job.has_failed for job in jobs),
    )


def _given(options: LogOptions) -> tuple[Floats, Floats] | None:
    if options.gpus is None or options.begin is None or options.end is None:
        return None
    clock_s = np.array([options.begin.seconds, options.end.seconds])
    return clock_s, (clock_s - clock_s[0]) * options.gpus / SECONDS_PER_HOUR


def _watched(jobs: list[_Job], options: LogOptions) -> tuple[Floats, Floats]:
    """The times at which jobs begin and end, and the GPU-hours of all until then. From `from` to `to`, where they are given; else from a second
    before the first begins, in which it may fail too."""
    ends = np.array([job.end_s for job in jobs])
    gpus = np.array([job.gpus for job in jobs], np.float64)
    clock_s = np.concatenate([ends - np.array([job.elapsed_s for job in jobs]), ends])
    order = np.argsort(clock_s, kind="stable")
    clock_s, running = clock_s[order], np.cumsum(np.concatenate([gpus, -gpus])[order])
    hours = np.diff(clock_s) * running[:-1] / SECONDS_PER_HOUR
    clock_s = np.concatenate([[clock_s[0] - 1], clock_s])
    gpu_hours = np.concatenate([[0.0, 0.0], np.cumsum(hours)])
    if options.begin is None and options.end is None:
        return clock_s, gpu_hours
    begin = options.begin.seconds if options.begin else clock_s[0]
    end = options.end.seconds if options.end else clock_s[-1]
    inside = clock_s[(clock_s > begin) & (clock_s < end)]
    cut = np.concatenate([[begin], inside, [end]])
    until = np.interp(cut, clock_s, gpu_hours)
    return cut, until - until[0]


class _Reader:
    """The lines of a table, one after another."""

    def __init__(self, lines: Lines, options: LogOptions, faults: Faults) -> None:
        self.lines, self.options, self.faults = lines, options, faults
        self.is_given = _given(options) is not None
        self.end_column = options.column or "End"
        self.times = Times(options, faults)
        at = lines.place
        self.places = {
            "JobID": at("JobID", "JobIDRaw"),
            "State": at("State"),
            "Start": at("Start"),
            self.end_column: at(self.end_column),
            "Elapsed": at("Elapsed", "ElapsedRaw"),
            "AllocTRES": at("AllocTRES"),
            "NodeList": at(*NODES),
        }
        needed = ["State", self.end_column, *([] if self.is_given else ["Elapsed", "AllocTRES"])]
        if missing := [name for name in needed if self.places[name] is None]:
            other = "" if self.is_given else ", or give gpus, from and to in a YAML file"
            raise DataError(
                f"{lines.path}: line {lines.first}: there is no column {' and no column '.join(missing)}: ask for them by {ASK}{other}"
            )

    def jobs(self) -> dict[tuple[str, str], _Job]:
        """By job and start, or end where there is no start: of lines that say the same run of a job twice, the one that saw more of it."""
        jobs: dict[tuple[str, str], _Job] = {}
        for line, row in self.lines.cells:
            if len(row) < len(self.lines.names):
                words = f"it has {len(row)} columns of {len(self.lines.names)}: complete or remove the line"
                self.faults.add("short", line, words)
            elif any(row[len(self.lines.names) :]):
                words = f"it has {len(row)} columns for {len(self.lines.names)} names: a cell holds a separator, so leave its column out"
                self.faults.add("long", line, words)
            elif "." not in self._cell(row, "JobID"):  # else a step of a job
                start = self._cell(row, "Start")
                job = self._job(line, row, start)
                key = (
                    self._cell(row, "JobID") or str(line),
                    start or self._cell(row, self.end_column),
                )
                if job is not None and (key not in jobs or jobs[key].elapsed_s <= job.elapsed_s):
                    jobs[key] = job
        return jobs

    def _cell(self, row: list[str], name: str) -> str:
        place = self.places[name]
        return "" if place is None else row[place]

    def _job(self, line: int, row: list[str], start: str) -> _Job | None:
        """None where it has not begun, or has faults."""
        gpus, elapsed_s = self._gpus(line, row), self._elapsed_s(line, row, start)
        found = STATE.fullmatch(self._cell(row, "State"))
        state = found[1] if found else ""
        if not found:
            words = "use a state of Slurm, as COMPLETED, or remove the line"
            self.faults.add("state", line, f"State is {show(self._cell(row, 'State'))}: {words}")
        has_failed = state in self.options.states and (gpus > 0 or self.places["AllocTRES"] is None)
        end = self._cell(row, self.end_column)
        if end.lower() not in UNKNOWN:
            read = self.times.failed if has_failed and self.is_given else self.times.read
            if (at := read(line, self.end_column, end)) is None:
                return None
            end_s = at.seconds
        elif has_failed:
            words = (
                f"{self.end_column} is {show(end)}, but it is {state}: say when, or remove the line"
            )
            self.faults.add("end", line, words)
            return None
        elif start.lower() in UNKNOWN:
            if elapsed_s and gpus and not self.is_given:
                words = f"{self.end_column} is {show(end)}, but it ran: ask for Start too, or remove the line"
                self.faults.add("start", line, words)
            return None
        else:
            begun = self.times.read(line, "Start", start)
            if begun is None:
                return None
            end_s = begun.seconds + elapsed_s  # it still runs
        return _Job(end_s, elapsed_s, gpus, has_failed, self._cell(row, "NodeList"))

    def _elapsed_s(self, line: int, row: list[str], start: str) -> float:
        text = self._cell(row, "Elapsed")
        if found := ELAPSED.fullmatch(text):
            days, hours, minutes, seconds, raw = (int(part or 0) for part in found.groups())
            return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds + raw)
        if text or (start.lower() not in UNKNOWN and not self.is_given):
            words = "use days-hours:minutes:seconds, as in 1-02:30:00, or remove the line"
            self.faults.add("elapsed", line, f"Elapsed is {show(text)}: {words}")
        return 0.0

    def _gpus(self, line: int, row: list[str]) -> int:
        """`gres/gpu=8`, or else all `gres/gpu:a100=8` together."""
        text = self._cell(row, "AllocTRES")
        found = [(kind, int(number)) for kind, number in GPUS.findall(text)]
        if re.search("gres/gpu[:=]", text) and not found:
            words = "use a number of GPUs, as in gres/gpu=8"
            self.faults.add("gpus", line, f"AllocTRES is {show(text)}: {words}")
        whole = [number for kind, number in found if not kind]
        return whole[0] if whole else sum(number for _, number in found)
