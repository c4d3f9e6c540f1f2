"""A log of failures: a list of times, or the jobs that a scheduler accounts for. How many failures, in how many GPU-hours.

Failures within one restart of another count as one: training that is down cannot fail again. So the GPU-hours within one restart of a
failure are not at risk either, and what is left is the *time at risk*. (A counter with this dead time, which later failures do not make longer: Knoll,
*Radiation Detection and Measurement*, chapter 4, the non-paralyzable model.)
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide.log_faults import Faults, likely_forms, rewritten
from ckptbench.decide.moments import HELP, Moment, moment
from ckptbench.errors import DataError
from ckptbench.machine.files import read_regular
from ckptbench.matrix.shown import show
from ckptbench.remedies import blame

Floats = NDArray[np.float64]

COLUMN = "time"
"""The column of the times of a list."""
NODES = ("node", "nodes", "nodelist", "host", "hostname")
"""Columns, in small letters, that say where a failure was."""
RESTART_S = 600.0
"""Failures within so long count as one, unless the user says how long a restart takes. Slurm needs up to 300 s (SlurmdTimeout) to see that a node of a
broken rack is down, and a large job some minutes to start."""
FAILURE_STATES = ("NODE_FAIL", "BOOT_FAIL", "FAILED")
"""Slurm's states of jobs that failed. Every other job is time at risk alone."""
MOST_FAILURES = 100_000
"""More than any machine has had."""
SECONDS_PER_HOUR = 3600
SEPARATORS = ",;\t"
NODE = re.compile(r"([\w.-]+)(?:\[([\d,-]+)\])?")
"""A part of Slurm's list of nodes: `login1`, or `gpu[01-03,07]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What the file of a log does not say itself."""

    gpus: int | None = None
    begin: Moment | None = None
    end: Moment | None = None
    column: str | None = None
    """Of the times. None: COLUMN of a list, `End` of a scheduler's table."""
    states: tuple[str, ...] = FAILURE_STATES
    restart_s: float = RESTART_S


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """The failures of a log, those within one restart of another as one."""

    at_gpu_hours: Floats
    """Shape (failures,), rising: GPU-hours that were watched until each."""
    watched_gpu_hours: float
    risk_gpu_hours: float
    """Watched, but not within one restart of a failure."""
    found: int
    """Failures in the log: those that are merged too."""
    worst: tuple[str, int] | None
    """The node with most failures and their number; None where no node had two."""

    @property
    def failures(self) -> int:
        return len(self.at_gpu_hours)

    @property
    def gaps_gpu_hours(self) -> Floats:
        """Shape (failures + 1,): the last has not ended."""
        return np.diff(self.at_gpu_hours, prepend=0.0, append=self.watched_gpu_hours)


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """Failures on the clock, and the GPU-hours that were watched until any time."""

    failed_s: Floats
    clock_s: Floats
    """Shape (points,), rising. Between two points equally many GPUs were watched."""
    gpu_hours: Floats
    """Shape (points,): watched until then; 0 first."""
    nodes: Iterable[str] = ()
    """Of each failure, as the log has it."""

    def counted(self, restart_s: float) -> Counted:
        kept: list[float] = []
        for at in sorted(self.failed_s):
            if not kept or at - kept[-1] > restart_s:
                kept.append(at)
        counted = np.array(kept)
        until, up = self._until(counted), self._until(counted + restart_s)
        total = float(self.gpu_hours[-1])
        named = Counter(name for nodes in self.nodes for name in dict.fromkeys(_names(nodes)))
        worst = next(iter(named.most_common(1)), ("", 0))
        return Counted(
            # The failure with which a list begins is where its time begins.
            until[counted > self.clock_s[0]],
            total,
            total - float((up - until).sum()),
            len(self.failed_s),
            worst if worst[1] > 1 else None,
        )

    def _until(self, at_s: Floats) -> Floats:
        watched: Floats = np.interp(at_s, self.clock_s, self.gpu_hours)
        return watched


def _names(nodes: str) -> Iterator[str]:
    """Each node of a list as Slurm writes it."""
    for stem, ranges in NODE.findall(nodes):
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first or 0), int(last or first or 0) + 1):
                yield f"{stem}{number:0{len(first)}}" if first else stem


@dataclass(frozen=True, slots=True)
class Lines:
    """A table of text: the names of its columns in the first line, and the cells of the others."""

    path: Path
    first: int
    """The number of the first line."""
    names: tuple[str, ...]
    cells: list[tuple[int, list[str]]]
    """With the number of each line, from 1."""

    def place(self, *names: str) -> int | None:
        """Of the first of these columns that is there, whatever its capitals."""
        small = [name.lower() for name in self.names]
        return next((small.index(each.lower()) for each in names if each.lower() in small), None)


def read_log(path: Path, options: LogOptions) -> Counted:
    """The failures of a log.

    Empty lines, and lines that begin with #, are skipped. Raises DataError with a line for each kind of fault: where it is first, what to do,
    and where else it is.
    """
    from ckptbench.decide.sacct import is_table, read_jobs

    faults = Faults(str(path))
    lines, broken = _read_lines(path)
    read = read_jobs if is_table(lines) else _read_list
    try:
        watched = read(lines, options, faults)
    except DataError as error:
        raise DataError("\n".join(filter(None, (faults.text(), str(error), broken)))) from None
    if text := "\n".join(filter(None, (faults.text(), broken))):
        raise DataError(text)
    assert watched is not None, "without faults all was read"
    if watched.gpu_hours[-1] <= 0:
        raise DataError(
            f"{path}: no time was watched in it, so it gives no rate: give a longer log"
        )
    return watched.counted(options.restart_s)


def _read_list(lines: Lines, options: LogOptions, faults: Faults) -> Watched | None:
    """The times of failures of one system. None where it has faults."""
    column = options.column or COLUMN
    place = lines.place(column)
    cells = lines.cells
    if place is None and len(lines.names) == 1 and moment_or_none(lines.names[0]) is not None:
        place, cells = 0, [(lines.first, list(lines.names)), *cells]  # without a line of names
    if place is None:
        raise DataError(
            f"{lines.path}: line {lines.first}: there is no column {show(column)} among {', '.join(map(show, lines.names))}: "
            "name the column of the times by `column`, and begin the file with a line of names"
        )
    times = Times(column, options, faults)
    nodes, failed = lines.place(*NODES), []
    where = []
    for number, row in cells:
        if place >= len(row):
            words = f"it has no column {show(column)}: complete or remove the line"
            faults.add("short", number, words)
        elif (at := times.failed(number, row[place])) is not None:
            failed.append(at.seconds)
            where.append(row[nodes] if nodes is not None and nodes < len(row) else "")
    times.tell_forms()
    if faults.count:
        return None
    if options.gpus is None:
        raise DataError(f"{lines.path}: a list of times does not say of how many GPUs: give gpus")
    known = {"from": options.begin, "to": options.end}
    if len(failed) < sum(each is None for each in known.values()):
        missing = [name for name, each in known.items() if each is None]
        raise DataError(
            f"{lines.path}: it has {'one failure' if failed else 'no failure'}, so it does not say how long the GPUs were watched: "
            f"give {' and '.join(missing)}"
        )
    clock = [
        options.begin.seconds if options.begin else min(failed),
        options.end.seconds if options.end else max(failed),
    ]
    hours = np.array([0.0, (clock[1] - clock[0]) / SECONDS_PER_HOUR])
    return Watched(np.array(failed), np.array(clock), hours * options.gpus, where)


class Times:
    """The times of one column, each checked as it is read."""

    def __init__(self, column: str, options: LogOptions, faults: Faults) -> None:
        self.column, self.options, self.faults = column, options, faults
        self.first = options.begin or options.end
        self.unread: list[tuple[int, str]] = []
        self.failures = 0

    def read(self, line: int, text: str, column: str = "") -> Moment | None:
        """None, and a fault, where it is no time or of another clock than the others."""
        column = column or self.column
        at = moment_or_none(text)
        if at is None:
            self.unread.append((line, text))
            return None
        self.first = self.first or at
        if at.clock != self.first.clock:
            other = "`from`" if self.first is self.options.begin else self.first.written
            self.faults.add(
                "clock",
                line,
                f"{column} is {show(text)}: it is {at.clock}, but {other} is {self.first.clock}: write all times in the same way",
            )
            return None
        return at

    def failed(self, line: int, text: str) -> Moment | None:
        """The time of a failure: within the time that was watched."""
        at = self.read(line, text)
        self.failures += at is not None
        if at is None or self.failures > MOST_FAILURES:
            if at is not None:
                words = f"a log has at most {MOST_FAILURES:,} failures: shorten it"
                self.faults.add("many", line, f"{self.column} is {show(text)}: {words}")
            return None
        begin, end = self.options.begin, self.options.end
        early = begin is not None and at.seconds <= begin.seconds
        if early or (end is not None and at.seconds > end.seconds):
            span = f"{begin.written if begin else 'its first failure'} to {end.written if end else 'its last failure'}"
            self.faults.add(
                "range",
                line,
                f"{self.column} is {show(text)}: the log was kept from {span}: remove the line, or correct `from` and `to`",
            )
            return None
        return at

    def tell_forms(self) -> None:
        """Add the times that could not be read, in the forms that they may be written in."""
        forms = likely_forms([text for _, text in self.unread])
        for line, text in self.unread:
            words = f"{self.column} is {show(text)}: {HELP}{rewritten(text, forms)}"
            self.faults.add("form", line, words)


def moment_or_none(text: str) -> Moment | None:
    try:
        return moment(text)
    except ValueError:
        return None


def _read_lines(path: Path) -> tuple[Lines, str]:
    """The lines, and the error that they break off with, if they do. Raises DataError where there are none."""
    broken = ""
    rows: list[tuple[int, list[str]]] = []
    try:
        text = read_regular(path).decode("utf-8-sig")
        head = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
        separator = "|" if "|" in head else max(SEPARATORS, key=head.count)
        # What sacct prints is not quoted.
        quote = None if separator == "|" else '"'
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote)
        for row in reader:
            if any(cell.strip() for cell in row) and not row[0].startswith("#"):
                rows.append((reader.line_num, [cell.strip() for cell in row]))
    except OSError as error:
        other = "correct `log`, which is a path from the folder of its YAML file"
        raise DataError(
            f"{path}: cannot be read: {blame(error, path, other, reading=True)}"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        broken = (
            f"{path}: cannot be read as CSV in UTF-8: {error}; "
            "correct it, or correct `log`, which is a path from the folder of its YAML file"
        )
    if not rows:
        raise DataError(broken or f"{path}: it is empty: begin it with a line of names")
    (first, names), *cells = rows
    return Lines(path, first, tuple(names), cells), broken
