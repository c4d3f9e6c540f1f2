"""What the options of `decide` say, put together into a case."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ckptbench.cli.case import Case, Failing, Strategy
from ckptbench.cli.values import BLOCKING, Checkpoint, Price, Seen
from ckptbench.common.errors import ConfigError, DataError
from ckptbench.decide.costs import Notice, Recovering, Saving
from ckptbench.decide.limit import Limit
from ckptbench.decide.state_bytes import State
from ckptbench.report.answer.labels import listed
from ckptbench.report.answer.quantities import Every, percent

if TYPE_CHECKING:
    from ckptbench.decide.rates import FailureRate


Read = TypeVar("Read")
NEVER_S = 1e12
"""In place of a mean time between failures where there are none."""
MOST_JOBS = 0.9
"""Of the time that all jobs ran: if so much was on one number of GPUs, that is the number."""
MOST_NAMED = 3
LIMIT_ALONE = "Only the time limit is counted: no option says how often the job fails (--mtbf 14h, --rate llama3)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options, in seconds and bytes. None or empty where one is not given."""

    gpus: int | None
    mtbf: float | Seen | None
    gpu_mtbf: float | None
    rate: str | None
    log: Path | None
    count: list[str] | None
    failures: int | Seen | None
    days: float | None
    step: float | None
    blocking: tuple[Checkpoint, ...]
    asynchronous: tuple[Checkpoint, ...]
    state: float | None
    params: float | None
    optimizer: str | None
    dtype: str | None
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
    gpu_hour_price: Price | None
    limit: float | None
    warning: float | None
    announced: float | None
    disk: float | None
    memory: float | None
    tools: tuple[str, ...]
    gpus_from: str = ""
    """Where their number was read, if no option says it."""
    gpus_hint: str = ""
    """Behind the question for them: on how many GPUs the jobs of the log ran, where these differ."""

    @property
    def is_of_tables(self) -> bool:
        """Whether costs come from a study or a file."""
        return bool(self.study or self.costs or self.training_logs)

    def with_gpus_of_log(self) -> Options:
        """With the number of GPUs on which nearly all jobs of `--log` ran, where no option says it. Raises DataError where the log cannot be read."""
        if self.gpus is not None or self.log is None or self.log.suffix == ".yaml":
            return self
        from ckptbench.decide.failure_log import gpus_of_jobs  # imports pandas

        known = _read(self.log, gpus_of_jobs)
        if known and known[0][1] >= MOST_JOBS:
            return replace(self, gpus=known[0][0], gpus_from=f"AllocTRES of {self.log.name}")
        shares = [f"{gpus:,} ({percent(part)} of the time)" for gpus, part in known[:MOST_NAMED]]
        return replace(self, gpus_hint=f"; the jobs of {self.log.name} ran on {listed(shares)}" if shares else "")  # fmt: skip

    @property
    def counted(self) -> State | None:
        """The state whose size follows from the number of parameters."""
        if self.params is None:
            return None
        return State(
            params=self.params, optimizer=self.optimizer or "adamw", dtype=self.dtype or "bf16"
        )

    @property
    def size(self) -> float | None:
        """Bytes of a checkpoint."""
        return self.state if self.counted is None else self.counted.size

    @property
    def time_limit(self) -> Limit | None:
        """That of a job."""
        return None if self.limit is None else Limit(seconds=self.limit)

    @property
    def is_limit_alone(self) -> bool:
        """Whether the time limit is all that ends a job: no option says how often failures come. A study says it of its own machine."""
        rates = (self.mtbf, self.gpu_mtbf, self.rate, self.log, self.failures)
        return self.limit is not None and self.study is None and not any(each is not None for each in rates)  # fmt: skip

    @property
    def is_of_storage(self) -> bool:
        """Whether a blocking checkpoint takes as long as storage says."""
        return self.size is not None and not self.blocking and not self.is_of_room

    @property
    def is_of_room(self) -> bool:
        """Whether the size only says what room checkpoints need."""
        asks = self.disk is not None or self.memory is not None
        return asks and self.bandwidth is None and self.rank_bandwidth is None

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Those that options name."""
        return (*self.blocking, *self.asynchronous)

    def case(self) -> Case:
        """What the options say without a table. They were checked."""
        assert self.gpus is not None
        assert self.step is not None
        assert self.restart is not None
        mtbf_s = self.mtbf_s(self.gpus)
        rate = None if mtbf_s is not None else self.failure_rate(self.gpus)
        notice = self.notice(rate)
        recovering = Recovering(down_s=self.restart)
        return Case(
            gpus=self.gpus,
            step_s=self.step,
            strategies=tuple(self.strategies(self.gpus)),
            recovering=recovering if notice is None else notice.before(recovering, self.step),
            failing=self._failing(self.gpus, mtbf_s, rate),
            notice=notice,
            size=self.size,
            now=self.now,
            limit=self.time_limit,
        )

    def notice(self, rate: FailureRate | None) -> Notice | None:
        """That before failures. Raises ConfigError where nothing says how many of them it comes before."""
        if self.warning is None:
            return None
        part = self.announced
        if part is None and rate is not None:
            part = rate.announced
        if part is None:
            raise ConfigError("--warning: no preemption was counted: say with --announced which part of the failures it comes before, as in --announced 80%")  # fmt: skip
        return Notice(seconds=self.warning, announced=part)

    def _failing(self, gpus: int, mtbf_s: float | None, rate: FailureRate | None) -> Failing:
        if mtbf_s is not None:
            if self.is_limit_alone:
                return Failing(per_s=np.array([1 / mtbf_s]), said=LIMIT_ALONE, is_counted=True)
            return Failing.as_given(mtbf_s)
        assert rate is not None
        return Failing.of(rate, gpus)

    def mtbf_s(self, gpus: int) -> float | None:
        """Seconds between failures of the job. None where a rate or a log says it."""
        if self.gpu_mtbf is not None:
            return self.gpu_mtbf / gpus
        if self.is_limit_alone:
            return NEVER_S
        return None if isinstance(self.mtbf, Seen) else self.mtbf

    @property
    def _seen(self) -> Seen | None:
        if isinstance(self.mtbf, Seen):
            return self.mtbf
        if isinstance(self.failures, Seen):
            return self.failures
        if self.failures is None or self.days is None:
            return None
        return Seen(self.failures, self.days)

    def failure_rate(self, gpus: int) -> FailureRate:
        """How often failures of a job on so many GPUs come. Raises as `any_rate`."""
        return self.any_rate(gpus).at(gpus)

    def any_rate(self, gpus: int) -> FailureRate:
        """The same before its `at` says what it is for other GPUs. Failures of a log within one restart of another count as one.

        Raises ConfigError or DataError where a file cannot be read.
        """
        from ckptbench.decide.exposure import FAILURE_STATES, RESTART_S
        from ckptbench.decide.rates import rate_of_count, rate_of_job, read_log, read_rate

        mtbf_s = self.mtbf_s(gpus)
        if mtbf_s is not None:
            return rate_of_job(mtbf_s, gpus)
        with_limit = self.limit is not None
        if self.rate is not None:
            return read_rate(self.rate, restart_s=self.restart, with_limit=with_limit)
        if self._seen is not None:
            return rate_of_count(self._seen.failures, self._seen.days, gpus)
        assert self.log is not None
        if self.log.suffix == ".yaml":  # that describes a log
            return read_rate(self.log, restart_s=self.restart, with_limit=with_limit)
        more = {"states": [*FAILURE_STATES, *self.count]} if self.count else {}
        minutes = (self.restart or RESTART_S) / 60
        words: dict[str, Any] = {
            "with_limit": with_limit,
            "gpus": gpus,
            "restart_minutes": minutes,
            **more,
        }
        return _read(self.log, partial(read_log, **words))

    def _write_s(self, gpus: int) -> float:
        """How long the state is written, by what is slowest: a GPU with its part, or all together."""
        assert self.size is not None
        part = self.size / (self.shared_by or gpus)
        of_rank_s = part / (self.rank_bandwidth or math.inf)
        return (self.write_fixed or 0.0) + max(of_rank_s, self.size / (self.bandwidth or math.inf))

    def strategies(self, gpus: int) -> Iterator[Strategy]:
        """Those that the options name."""
        named = self.checkpoints
        if self.is_of_storage:
            named = (Checkpoint(name=BLOCKING, stall_s=self._write_s(gpus), then_s=0.0), *named)
        for each in named:
            then_s = self._write_s(gpus) if each.then_s is None else each.then_s
            saving = Saving(stall_s=each.stall_s, durable_s=each.stall_s + then_s)
            yield Strategy(name=each.name, saving=saving)


def _read(log: Path, reader: Callable[[Path], Read]) -> Read:
    """Raises DataError where that log of failures cannot be read."""
    try:
        return reader(log)
    except DataError:
        if _is_of_training(log):
            raise DataError(f"{log}: this is the log of a training: give it to --training-log") from None  # fmt: skip
        raise


def _is_of_training(path: Path) -> bool:
    from ckptbench.decide.training_log.reader import read_log

    try:
        return read_log(path).has_steps
    except DataError:
        return False
