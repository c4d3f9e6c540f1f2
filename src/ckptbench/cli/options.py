"""What the options of `decide` say: their values with units, put together into a case. What is missing, or too much, is told all at once."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ckptbench.cli.case import Case, Failing, Strategy
from ckptbench.common.errors import ConfigError
from ckptbench.decide.model import Recovering, Saving
from ckptbench.decide.units import SECONDS_PER_DAY
from ckptbench.matrix.shown import show
from ckptbench.report.answer.quantities import (
    Every,
    read_bandwidth,
    read_count,
    read_every,
    read_size,
    read_time,
)

if TYPE_CHECKING:
    from ckptbench.decide.rates import FailureRate


BLOCKING, ASYNCHRONOUS = "blocking", "async"
"""Names of strategies without one."""
PLUS = re.compile(r"(?<!\d[eE])\+")
"""Between two times, and not that of a number such as 1e+3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What one checkpoint of a strategy costs, as an option says it."""

    name: str
    stall_s: float
    """Training is blocked."""
    then_s: float | None = None
    """From then on until the checkpoint is durable. None: as long as `--state` and `--bandwidth` say."""


class Read(click.ParamType[Any]):
    """A text that one of the functions of `quantities` reads."""

    def __init__(self, metavar: str, read: Callable[[str], Any]) -> None:
        self.name = metavar
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def _blocking(text: str) -> Checkpoint:
    name, time = _named(text, BLOCKING)
    return Checkpoint(name=name, stall_s=read_time(time), then_s=0.0)


def _asynchronous(text: str) -> Checkpoint:
    name, times = _named(text, ASYNCHRONOUS)
    stall, *then = PLUS.split(times, maxsplit=1)
    return Checkpoint(
        name=name, stall_s=read_time(stall), then_s=read_time(then[0]) if then else None
    )


def read_days(text: str) -> float:
    """Days: `7`, or another time with its unit, as `2 weeks`."""
    return read_time(text if re.search("[A-Za-z]", text) else f"{text} days") / SECONDS_PER_DAY


def read_states(text: str) -> list[str]:
    """Slurm's states, as `PREEMPTED,TIMEOUT`."""
    from ckptbench.decide.exposure import ENDS

    states = [state.strip().upper() for state in text.split(",")]
    if unknown := [state for state in states if state not in ENDS]:
        raise ConfigError(f"{show(unknown[0])} is no state of a job that ended: use {', '.join(ENDS)}")  # fmt: skip
    return states


def _named(text: str, usual: str) -> tuple[str, str]:
    """The name, and what stands behind it. Without a name the usual one."""
    name, given, rest = text.rpartition("=")
    if not given:
        return usual, text
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"{show(text)}: write a name before =, as in sharded=20s")
    return " ".join(name.split()), rest


DAYS = Read("DAYS", read_days)
STATES = Read("STATES", read_states)
TIME = Read("TIME", read_time)
COUNT = Read("NUMBER", read_count)
SIZE = Read("SIZE", read_size)
BANDWIDTH = Read("BANDWIDTH", read_bandwidth)
EVERY = Read("TIME|STEPS", read_every)
A_BLOCKING = Read("[NAME=]TIME", _blocking)
AN_ASYNCHRONOUS = Read("[NAME=]TIME+TIME", _asynchronous)


RATES = ("mtbf", "gpu_mtbf", "rate", "log", "failures")
"""The options that say how often failures come."""
CHECKPOINTS = ("blocking", "asynchronous", "state")
"""Those that say what a checkpoint costs."""
WRITING = ("bandwidth", "rank_bandwidth")
STORAGE = (*WRITING, "shared_by", "write_fixed")
"""Those that say how the state is written."""
TABLES = ("study", "costs", "training_logs")
"""Those that name a file with costs."""
MISSING = {
    "gpus": "--gpus: how many train together",
    "step": "--step: how long one step takes",
    "restart": "--restart: how long it takes from a failure until training goes on",
}
"""What is said where an option is missing."""


OTHERWISE = {"asynchronous": "--async", "training_logs": "--training-log"}
"""Options that are not named as their field."""


def option(name: str) -> str:
    """The option of a field of `Options`."""
    return OTHERWISE.get(name, f"--{name.replace('_', '-')}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options, in seconds and bytes. None or empty where one is not given."""

    gpus: int | None
    mtbf: float | None
    gpu_mtbf: float | None
    rate: str | None
    log: Path | None
    count: list[str] | None
    failures: int | None
    days: float | None
    step: float | None
    blocking: tuple[Checkpoint, ...]
    asynchronous: tuple[Checkpoint, ...]
    state: float | None
    bandwidth: float | None
    rank_bandwidth: float | None
    shared_by: int | None
    write_fixed: float | None
    restart: float | None
    now: Every | None
    study: Path | None
    costs: Path | None
    training_logs: tuple[Path, ...]
    log_pattern: tuple[str, ...]

    @property
    def is_of_tables(self) -> bool:
        """Whether costs come from a study or a file."""
        return bool(self._given(TABLES))

    def check(self) -> None:
        """Raises a usage error with a line for all that is missing or does not go together."""
        if faults := [*self._missing(), *self._too_much()]:
            raise click.UsageError("\n  ".join(["correct the options:", *faults]))

    def case(self) -> Case:
        """What the options say without a table. They were checked."""
        assert self.gpus is not None
        assert self.step is not None
        assert self.restart is not None
        return Case(
            gpus=self.gpus,
            step_s=self.step,
            strategies=tuple(self.strategies(self.gpus)),
            recovering=Recovering(down_s=self.restart),
            failing=self._failing(self.gpus),
            now=self.now,
        )

    def _failing(self, gpus: int) -> Failing:
        mtbf_s = self.mtbf_s(gpus)
        if mtbf_s is not None:
            return Failing.as_given(mtbf_s)
        return Failing.of(self.failure_rate(gpus), gpus)

    def mtbf_s(self, gpus: int) -> float | None:
        """Seconds between failures of the job. None where a rate or a log says it."""
        return self.gpu_mtbf / gpus if self.gpu_mtbf is not None else self.mtbf

    def failure_rate(self, gpus: int) -> FailureRate:
        """How often failures come. Failures of a log within one restart of another count as one.

        Raises ConfigError or DataError where a file cannot be read.
        """
        from ckptbench.decide.exposure import FAILURE_STATES, RESTART_S
        from ckptbench.decide.rates import rate_of_count, rate_of_job, read_log, read_rate

        mtbf_s = self.mtbf_s(gpus)
        if mtbf_s is not None:
            return rate_of_job(mtbf_s, gpus)
        if self.rate is not None:
            return read_rate(self.rate)
        if self.failures is not None and self.days is not None:
            return rate_of_count(self.failures, self.days, gpus)
        assert self.log is not None
        if self.log.suffix == ".yaml":  # that describes a log
            return read_rate(self.log)
        more = {"states": [*FAILURE_STATES, *self.count]} if self.count else {}
        return read_log(
            self.log, gpus=gpus, restart_minutes=(self.restart or RESTART_S) / 60, **more
        )

    def missing_rate(self) -> Iterator[str]:
        """A line if no option says how often failures come. For a training log it is printed with what the log lacks."""
        if not self._given(RATES):
            yield f"{' or '.join(map(option, RATES))}: how often failures come"

    def _missing(self) -> Iterator[str]:
        if not self.training_logs:
            yield from self.missing_rate()
        if self.is_of_tables:
            return
        yield from (words for name, words in MISSING.items() if getattr(self, name) is None)
        if not self._given((*CHECKPOINTS, *STORAGE)):
            yield "--blocking or --async, or --state and --bandwidth: what a checkpoint costs; or --study or --costs, which say all of it, or --training-log"

    def _too_much(self) -> Iterator[str]:
        yield from self._too_many_rates()
        yield from self._too_many_costs()
        names = [each.name for each in self._checkpoints()]
        counts = Counter([*names, BLOCKING] if self._is_of_storage else names)
        for name in (name for name, number in counts.items() if number > 1):
            yield f"{name}: {counts[name]} strategies have this name: give each its own, as in sharded=20s"

    def _too_many_rates(self) -> Iterator[str]:
        if len(rates := self._given(RATES)) > 1:
            yield f"{' and '.join(rates)}: give one of them, as each says how often failures come"
        if (self.failures is None) != (self.days is None):
            yield "--failures and --days: give both, as in --failures 3 --days 7"
        if self.count and (self.log is None or self.log.suffix == ".yaml"):
            yield "--count: give --log JOBS too, a table of sacct; in a YAML file, write the states into `states`"

    def _too_many_costs(self) -> Iterator[str]:
        if len(tables := self._given(TABLES)) > 1:
            yield f"{' and '.join(tables)}: give one of them, as each says what checkpoints cost"
        if self.log_pattern and not self.training_logs:
            yield "--log-pattern: give --training-log too, the log that it reads"
        if len({*self.training_logs}) < len(self.training_logs):
            yield "--training-log: one file is given twice: give each once"
        if self.gpus is not None:
            yield from self.too_many_shares(self.gpus)
        is_whole = self.study is not None or self.costs is not None
        if is_whole and (given := self._given((*CHECKPOINTS, *STORAGE))):
            yield f"{' and '.join(given)}: leave out what --study or --costs says too"
        if self.state is None and (given := self._given(STORAGE)):
            yield f"{' and '.join(given)}: give --state too, as they say how it is written"
        if self.state is not None and not self._given(WRITING):
            yield f"--state: give {' or '.join(map(option, WRITING))} too, which say how fast it is written"
        if self.state is not None and not self._uses_storage():
            given = self._given(("state", *STORAGE))
            yield f"{' and '.join(given)}: leave out what --blocking says too, or leave out --blocking"
        for each in self._checkpoints():
            if each.then_s is None and self.state is None:
                yield f"--async ({each.name}): add how much later it is durable, as in 3s+90s, or give --state and --bandwidth"

    def too_many_shares(self, gpus: int) -> Iterator[str]:
        """A line if more GPUs hold parts of the state than train."""
        if self.shared_by is not None and self.shared_by > gpus:
            yield f"--shared-by is {self.shared_by:,}: use at most the {gpus:,} of --gpus"

    def _uses_storage(self) -> bool:
        """Whether a time follows from the state and how it is written."""
        return self._is_of_storage or any(each.then_s is None for each in self._checkpoints())

    @property
    def _is_of_storage(self) -> bool:
        """Whether a blocking checkpoint takes as long as storage says."""
        return self.state is not None and not self.blocking

    def _given(self, names: Sequence[str]) -> list[str]:
        return [option(name) for name in names if getattr(self, name) not in (None, ())]

    def _checkpoints(self) -> tuple[Checkpoint, ...]:
        return (*self.blocking, *self.asynchronous)

    def _write_s(self, gpus: int) -> float:
        """How long the state is written, by what is slowest: a GPU with its part, or all together."""
        assert self.state is not None
        part = self.state / (self.shared_by or gpus)
        of_rank_s = part / (self.rank_bandwidth or math.inf)
        return (self.write_fixed or 0.0) + max(of_rank_s, self.state / (self.bandwidth or math.inf))

    def strategies(self, gpus: int) -> Iterator[Strategy]:
        """Those that the options name."""
        named = self._checkpoints()
        if self._is_of_storage:
            named = (Checkpoint(name=BLOCKING, stall_s=self._write_s(gpus), then_s=0.0), *named)
        for each in named:
            then_s = self._write_s(gpus) if each.then_s is None else each.then_s
            saving = Saving(stall_s=each.stall_s, durable_s=each.stall_s + then_s)
            yield Strategy(name=each.name, saving=saving)
