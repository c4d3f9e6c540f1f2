"""What the options of `decide` say: their values with units, put together into a case. What is missing, or too much, is told all at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ckptbench.common.errors import ConfigError
from ckptbench.decide import formulas
from ckptbench.decide.model import Recovering, Saving
from ckptbench.decide.projection import saving_of
from ckptbench.decide.storage import GPUS_PER_NODE, Storage
from ckptbench.matrix.shown import show
from ckptbench.report.answer.quantities import (
    Every,
    read_bandwidth,
    read_count,
    read_every,
    read_size,
    read_time,
)
from ckptbench.report.commands.case import Case, Failing, Strategy, failure_rate

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
    """A text that one of the functions of `quantities` reads. The context keeps it as it is written, for the page."""

    def __init__(self, metavar: str, read: Callable[[str], Any]) -> None:
        self.name = metavar
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if ctx is not None and param is not None:
            written(ctx).append((param.opts[0].removeprefix("--"), value))
        try:
            return self._read(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def written(ctx: click.Context) -> list[tuple[str, str]]:
    """The options of this kind as they are written, each with its name."""
    texts: list[tuple[str, str]] = ctx.meta.setdefault(f"{__name__}.written", [])
    return texts


def _blocking(text: str) -> Checkpoint:
    name, time = _named(text, BLOCKING)
    return Checkpoint(name=name, stall_s=read_time(time), then_s=0.0)


def _asynchronous(text: str) -> Checkpoint:
    name, times = _named(text, ASYNCHRONOUS)
    stall, *then = PLUS.split(times, maxsplit=1)
    return Checkpoint(
        name=name, stall_s=read_time(stall), then_s=read_time(then[0]) if then else None
    )


def _named(text: str, usual: str) -> tuple[str, str]:
    """The name, and what stands behind it. Without a name the usual one."""
    name, given, rest = text.rpartition("=")
    if not given:
        return usual, text
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"{show(text)}: write a name before =, as in sharded=20s")
    return " ".join(name.split()), rest


TIME = Read("TIME", read_time)
COUNT = Read("NUMBER", read_count)
SIZE = Read("SIZE", read_size)
BANDWIDTH = Read("BANDWIDTH", read_bandwidth)
EVERY = Read("TIME|STEPS", read_every)
A_BLOCKING = Read("[NAME=]TIME", _blocking)
AN_ASYNCHRONOUS = Read("[NAME=]TIME+TIME", _asynchronous)


RATES = {"mtbf": "--mtbf", "gpu_mtbf": "--gpu-mtbf", "rate": "--rate", "log": "--log"}
"""The options that say how often failures come."""
CHECKPOINTS = {"blocking": "--blocking", "asynchronous": "--async", "state": "--state"}
"""Those that say what a checkpoint costs."""
WRITING = {
    "bandwidth": "--bandwidth",
    "rank_bandwidth": "--rank-bandwidth",
    "node_bandwidth": "--node-bandwidth",
}
STORAGE = {
    **WRITING,
    "copy_bandwidth": "--copy-bandwidth",
    "read_bandwidth": "--read-bandwidth",
    "shared_by": "--shared-by",
    "gpus_per_node": "--gpus-per-node",
    "write_fixed": "--write-fixed",
}
"""Those that say how the state is written and read."""
TABLES = {"study": "--study", "costs": "--costs", "training_log": "--training-log"}
"""Those that name a file with costs."""
GROWING = {"restart_per_gpu": "--restart-per-gpu"}
"""Options that refine a restart. Costs in a table say this themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options, in seconds and bytes. None or empty where one is not given."""

    gpus: int | None
    mtbf: float | None
    gpu_mtbf: float | None
    rate: str | None
    log: Path | None
    step: float | None
    blocking: tuple[Checkpoint, ...]
    asynchronous: tuple[Checkpoint, ...]
    state: float | None
    bandwidth: float | None
    rank_bandwidth: float | None
    node_bandwidth: float | None
    copy_bandwidth: float | None
    read_bandwidth: float | None
    shared_by: int | None
    gpus_per_node: int | None
    write_fixed: float | None
    restart: float | None
    restart_per_gpu: float | None
    now: Every | None
    study: Path | None
    costs: Path | None
    training_log: Path | None
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
            recovering=Recovering(down_s=self.down_s(self.restart, self.gpus)),
            failing=self._failing(self.gpus),
            now=self.now,
        )

    def mtbf_s(self, gpus: int) -> float | None:
        """Seconds between failures of the job. None where a rate or a log says it."""
        return self.gpu_mtbf / gpus if self.gpu_mtbf is not None else self.mtbf

    def failure_rate(self, gpus: int) -> FailureRate:
        """How often failures come. Raises ConfigError or DataError where a file cannot be read."""
        return failure_rate(
            gpus, mtbf_s=self.mtbf_s(gpus), rate=self.rate, log=self.log, restart_s=self.restart
        )

    def _failing(self, gpus: int) -> Failing:
        mtbf_s = self.mtbf_s(gpus)
        if mtbf_s is not None:
            return Failing.as_given(mtbf_s)
        return Failing.of(self.failure_rate(gpus), gpus)

    def missing_rate(self) -> Iterator[str]:
        """A line if no option says how often failures come. For a training log it is printed with what the log lacks."""
        if not self._rates():
            yield f"{' or '.join(RATES.values())}: how often failures come"

    def _missing(self) -> Iterator[str]:
        if self.training_log is None:
            yield from self.missing_rate()
        if self.is_of_tables:
            return
        if self.gpus is None:
            yield "--gpus: how many train together"
        if self.step is None:
            yield "--step: how long one step takes"
        if not self._given({**CHECKPOINTS, **STORAGE}):
            yield "--blocking or --async, or --state and --bandwidth: what a checkpoint costs; or --study or --costs, which say all of it, or --training-log"
        if self.restart is None:
            yield "--restart: how long it takes from a failure until training goes on"

    def _too_much(self) -> Iterator[str]:
        if len(rates := self._rates()) > 1:
            yield f"{' and '.join(rates)}: give one of them, as each says how often failures come"
        if len(tables := self._given(TABLES)) > 1:
            yield f"{' and '.join(tables)}: give one of them, as each says what checkpoints cost"
        if self.log_pattern and self.training_log is None:
            yield "--log-pattern: give --training-log too, the log that it reads"
        added = self._given({**GROWING, "read_bandwidth": "--read-bandwidth"})
        if self.training_log is not None and self.restart is None and added:
            yield f"{' and '.join(added)}: give --restart too, to which it is added"
        is_whole = self.study is not None or self.costs is not None
        if is_whole and (given := self._given({**CHECKPOINTS, **STORAGE, **GROWING})):
            yield f"{' and '.join(given)}: leave out what --study or --costs says too"
        if self.state is None and (given := self._given(STORAGE)):
            yield f"{' and '.join(given)}: give --state too, as they say how it is written and read"
        if self.state is not None and not self._given(WRITING):
            yield f"--state: give {' or '.join(WRITING.values())} too, which say how fast it is written"
        if self.state is not None and not self._uses_storage():
            given = self._given({"state": "--state", **STORAGE})
            yield f"{' and '.join(given)}: leave out what --blocking says too, or leave out --blocking"
        if self.copy_bandwidth is not None and self.asynchronous:
            yield "--copy-bandwidth: leave out what --async says too, or leave out --async"
        for each in self._checkpoints():
            if each.then_s is None and self.state is None:
                yield f"--async ({each.name}): add how much later it is durable, as in 3s+90s, or give --state and --bandwidth"
        counts = Counter([*self._of_storage(), *(each.name for each in self._checkpoints())])
        for name in (name for name, number in counts.items() if number > 1):
            yield f"{name}: {counts[name]} strategies have this name: give each its own, as in sharded=20s"

    def _uses_storage(self) -> bool:
        """Whether a time follows from the state and how it is written and read."""
        of_saves = self._of_storage() or any(each.then_s is None for each in self._checkpoints())
        return bool(of_saves) or self.read_bandwidth is not None

    def _of_storage(self) -> list[str]:
        """Strategies whose times storage tells."""
        if self.state is None:
            return []
        is_copied = self.copy_bandwidth is not None and not self.asynchronous
        return [*([] if self.blocking else [BLOCKING]), *([ASYNCHRONOUS] if is_copied else [])]

    def _rates(self) -> list[str]:
        return self._given(RATES)

    def _given(self, options: Mapping[str, str]) -> list[str]:
        return [option for name, option in options.items() if getattr(self, name) not in (None, ())]

    def _checkpoints(self) -> tuple[Checkpoint, ...]:
        return (*self.blocking, *self.asynchronous)

    def _storage(self, gpus: int) -> Storage | None:
        """What is written and read, and how fast. None where no option says it."""
        if self.state is None:
            return None
        return Storage.of(
            state_bytes=self.state,
            gpus=gpus,
            shared_by=self.shared_by,
            gpus_per_node=self.gpus_per_node or GPUS_PER_NODE,
            rank_bytes_per_s=self.rank_bandwidth,
            node_bytes_per_s=self.node_bandwidth,
            all_bytes_per_s=self.bandwidth,
            copy_bytes_per_s=self.copy_bandwidth,
            read_bytes_per_s=self.read_bandwidth,
            write_fixed_s=self.write_fixed or 0.0,
        )

    def down_s(self, restart_s: float, gpus: int) -> float:
        """A restart, with what each GPU adds, and with the load where it is told how fast that is."""
        storage = self._storage(gpus)
        load_s = (
            0.0
            if storage is None or self.read_bandwidth is None
            else float(formulas.down_s(storage, gpus))
        )
        return restart_s + gpus * (self.restart_per_gpu or 0.0) + load_s

    def strategies(self, gpus: int) -> Iterator[Strategy]:
        """Those that the options name."""
        storage = self._storage(gpus)
        if storage is not None:
            for name in self._of_storage():
                saving = saving_of(storage, gpus, asynchronous=name == ASYNCHRONOUS)
                yield Strategy(name=name, saving=saving)
        for each in self._checkpoints():
            then_s = each.then_s
            if then_s is None:
                assert storage is not None
                then_s = float(formulas.write_s(storage, gpus))
            yield Strategy(
                name=each.name,
                saving=Saving(stall_s=each.stall_s, durable_s=each.stall_s + then_s),
            )
