"""What a study will take, in at most ten lines: runs, steps, checkpoints, bytes, time and node-hours. Nothing runs for it.

Numbers of runs, steps, checkpoints and bytes follow from the config. Time is that of earlier runs, a limit or a guess, and the lines say which.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ckptbench.common.errors import CkptbenchError
from ckptbench.config.earlier_runs import EarlierRuns
from ckptbench.config.feasible import known_steps_per_epoch
from ckptbench.config.inputs import sizes_for, sizes_of
from ckptbench.config.study import StudyConfig
from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.levels import SHARED, levels_of
from ckptbench.run.plan import Sizes

MOST_ROWS = 3
GROUPS = (("framework", "model", "ranks"), ("framework", "model"), ("model",), ("framework",), ())
"""What a row may be of: the first one that gives at most MOST_ROWS."""
COLUMNS = ("", "runs", "ranks", "steps a run", "checkpoints", "bytes of each")
MINUTES_PER_HOUR = 60
START_S = 10
"""Of a run on a CPU: imports, and the ranks' connections."""
RATE_PER_CORE = 20e9
"""Operations a second."""
UPDATE_RATE = 1e9
"""Bytes a second of parameters and optimizer slots, through which averaging and update go."""
WRITE_RATE = 300e6
"""Bytes a second."""
UNSURE = 2.5
"""Factor between the guess and either of its ends. The four numbers above were chosen so that four shipped studies of known time lie between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the profile has for the runs."""

    at_once: int = 1
    """Runs at a time, at most."""
    is_cluster: bool = False
    """Whether each run is a job, on nodes of its own."""
    ranks_per_node: int | None = None
    """None: a run has one node."""
    limit_min: float | None = None
    """Of a job. None: the profile has none."""
    most_nodes: int | None = None
    """Of a job. None: the profile says none."""
    gpus: int | None = None
    """Of this machine, where runs need them. None: they need none, or are on other machines."""

    def nodes(self, ranks: int) -> int:
        return math.ceil(ranks / (self.ranks_per_node or ranks))


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is to come."""

    cell: Cell
    steps: int | None
    """This field and the next ones: None where its dataset must be prepared first."""
    saves: int | None
    """At the shared level."""
    save_bytes: int | None
    """Tensors of one checkpoint, uncompressed."""
    step_s: float | None
    """A guess, for a CPU."""

    @property
    def written(self) -> int | None:
        if self.saves == 0:
            return 0
        if self.saves is None or self.save_bytes is None:
            return None
        return self.saves * self.save_bytes

    @property
    def guessed_s(self) -> float | None:
        if self.steps is None or self.step_s is None or self.written is None:
            return None
        return START_S + self.steps * self.step_s + self.written / WRITE_RATE

    def held(self, versions: int) -> int:
        """Bytes of so many versions, if it has as many. 0 where nothing is known."""
        return min(versions, self.saves or 0) * (self.save_bytes or 0)


def outlook(
    name: str, config: StudyConfig, cells: Sequence[Cell], machine: Machine, results: Path
) -> list[str]:
    """The lines. `name` is that of the study, `results` the folder of its results."""
    size = functools.cache(functools.partial(_sizes, config, results / "datasets"))
    runs = [_run(cell, config, size) for cell in cells]
    earlier = EarlierRuns.read(results / "runs", config.training_of_cells())
    left = [run for run in runs if run.cell.id not in earlier.done]
    return [
        f"{name}: {len(cells):,} runs, {len(cells) - len(left):,} of them done",
        *_table(runs),
        f"checkpoints  {_bytes(runs, config, machine)}",
        *_time(left, earlier, config, machine),
    ]


def _sizes(config: StudyConfig, datasets: Path, model: str, dataset: str) -> Sizes | None:
    """The sizes of a model for a dataset. None where the dataset is to be prepared first."""
    source = getattr(config.datasets, dataset)
    if source.train_samples is None:
        with suppress(CkptbenchError):
            return sizes_of(model, Dataset.open(datasets / dataset))
    if source.sample_shape is None or source.classes is None:
        return None
    return sizes_for(model, source.sample_shape, source.classes, source.train_samples or 0)


def _run(cell: Cell, config: StudyConfig, sizes: Callable[[str, str], Sizes | None]) -> Run:
    of_epoch, size = known_steps_per_epoch(cell, config), sizes(cell.model, cell.dataset)
    if of_epoch is None and size is not None and size.samples:
        of_epoch = size.samples // (cell.ranks * cell.batch_size)
    steps = None if of_epoch is None else cell.epochs * of_epoch
    step_s = None if size is None else _step_s(cell, size)
    if cell.is_baseline:
        return Run(cell, steps, 0, None, step_s)
    every = levels_of(cell.strategy).get(SHARED, 0)
    saves = None
    if cell.interval.unit == "epochs":
        saves = cell.epochs // cell.interval.every
    elif steps is not None:
        saves = steps // cell.interval.every
    shared = 0 if every == 0 else None if saves is None else saves // every
    return Run(cell, steps, shared, None if size is None else size.state_bytes(cell), step_s)


def _step_s(cell: Cell, size: Sizes) -> float:
    """Forward and backward are three forward passes, each with an addition for a multiplication. All ranks share the cores."""
    operations = 3 * 2 * size.multiplications * cell.batch_size * cell.ranks
    cores = len(os.sched_getaffinity(0))
    return operations / (cores * RATE_PER_CORE) + cell.ranks * size.updated_bytes(cell) / UPDATE_RATE  # fmt: skip


def _table(runs: Sequence[Run]) -> Iterator[str]:
    """The heads of the columns, and a row for each group."""
    for keys in GROUPS:
        groups: dict[tuple[str, ...], list[Run]] = {}
        for run in runs:
            named = tuple(str(getattr(run.cell, key)) for key in keys)
            groups.setdefault(named, []).append(run)
        if len(groups) <= MOST_ROWS:
            break
    rows = [COLUMNS, *(_row(" ".join(named), group) for named, group in groups.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (f"{each:>{width}}" for each, width in zip(others, widths[1:], strict=True))
        yield "  ".join([f"{first:{widths[0]}}", *cells])


def _row(name: str, runs: Sequence[Run]) -> tuple[str, ...]:
    saving = [run for run in runs if run.saves != 0]
    return (
        name,
        f"{len(runs):,}",
        _span((run.cell.ranks for run in runs), str),
        _span((run.steps for run in runs), "{:,}".format),
        _total(run.saves for run in runs),
        _span((run.save_bytes for run in saving), _size),
    )


def _span(values: Iterable[int | None], show: Callable[[int], str]) -> str:
    """`4 - 256`, or one number. `?`: not known."""
    each = set(values)
    known = sorted(value for value in each if value is not None)
    if not each:
        return "-"
    if None in each or not known:
        return "?"
    return " - ".join(dict.fromkeys([show(known[0]), show(known[-1])]))


def _total(values: Iterable[int | None]) -> str:
    each = list(values)
    return "?" if None in each else f"{sum(value or 0 for value in each):,}"


def _bytes(runs: Sequence[Run], config: StudyConfig, machine: Machine) -> str:
    """What is written in all, and what lies on the disk at once."""
    known = [run.written for run in runs if run.written is not None]
    if not (unknown := len(runs) - len(known)) and not sum(known):
        return "none"
    kept, after = config.checkpoints.keep_during_run + 1, config.checkpoints.keep_after_run
    growth = sorted((run.held(kept) - run.held(after) for run in runs), reverse=True)
    peak = sum(run.held(after) for run in runs) + sum(growth[: machine.at_once])
    words = f"{_size(sum(known))} written, at most {_size(peak)} on the disk at once: tensors, uncompressed"
    return f"{words}; without {unknown:,} runs of a dataset to be prepared" if unknown else words


def _size(number: float) -> str:
    """Three digits and a unit."""
    power = 0 if number < 1 else min(5, int(math.log10(number) / 3 + 1e-9))
    value = number / 1000**power
    return f"{float(f'{value:.3g}'):g} {('B', 'kB', 'MB', 'GB', 'TB', 'PB')[power]}"


def _time(
    runs: Sequence[Run], earlier: EarlierRuns, config: StudyConfig, machine: Machine
) -> Iterator[str]:
    """How long the runs take that are left: as earlier ones took, and at most."""
    if not runs:
        yield "time         none: every run is done"
        return
    left = [run.cell for run in runs]
    most = max(cell.ranks for cell in left)
    is_short = machine.gpus is not None and machine.gpus < most
    if is_short:
        yield f"GPUs         needs {most} CUDA GPUs, and this machine has {machine.gpus or 'none'}: plan for a cluster (PROFILE=slurm), or leave out ranks"
    minutes = {cell: each for cell in left if (each := earlier.minutes(cell)) is not None}
    limits = [each for each in (machine.limit_min, config.limits.run_minutes) if each is not None]
    limit = min(limits, default=None)
    if machine.most_nodes is not None and machine.nodes(most) > machine.most_nodes:
        yield f"nodes        {machine.nodes(most)} for {most:,} ranks, and a job has {machine.most_nodes} at most (max_nodes): leave out ranks, or name another queue"
    guess = "" if is_short else _guess(runs, config, machine)
    if wall := _wall(left, minutes, limit, machine) or guess:
        yield f"time         {wall}"
    if machine.is_cluster:
        yield f"node-hours   {_node_hours(left, minutes, limit, machine)}"


def _wall(
    left: Sequence[Cell], minutes: Mapping[Cell, float], limit: float | None, machine: Machine
) -> str:
    parts, at_once = [], min(machine.at_once, len(left))
    if minutes:
        some = f" for {len(minutes):,} of the {len(left):,} runs left" * (len(minutes) < len(left))
        taken = _duration(sum(minutes.values()) / at_once)
        parts.append(f"about {taken}{some}, as earlier runs took")
    if limit is not None:
        rounds = math.ceil(len(left) / at_once)
        parts.append(f"at most {_duration(rounds * limit)}: {limit:g} min a run, {at_once} at once")
    if not parts:
        return ""
    return "; ".join(parts) + (", without the wait in the queue" if machine.is_cluster else "")


def _guess(runs: Sequence[Run], config: StudyConfig, machine: Machine) -> str:
    """Where neither earlier runs nor a limit say a time: from the sizes, on this machine's CPU. Else what to do."""
    first = "start it" if config.repeats == 1 else "run one repeat (snakemake ... --config repeats=1)"  # fmt: skip
    seconds = [run.guessed_s for run in runs]
    if config.accelerator != "cpu" or machine.is_cluster or None in seconds:
        return f"not known yet: {first}, and ask again when some runs are done"
    minutes = sum(each or 0 for each in seconds) / 60 / min(machine.at_once, len(runs))
    ends = " to ".join(map(_duration, (minutes / UNSURE, minutes * UNSURE)))
    return f"{ends}, a guess from the sizes of network and state: for a better one {first}, then ask again"


def _node_hours(
    left: Sequence[Cell], minutes: Mapping[Cell, float], limit: float | None, machine: Machine
) -> str:
    parts = []
    if len(minutes) == len(left):
        taken = sum(each * machine.nodes(cell.ranks) for cell, each in minutes.items())
        parts.append(f"about {_hours(taken / MINUTES_PER_HOUR)}, as earlier runs took")
    if limit is not None:
        most = limit * sum(machine.nodes(cell.ranks) for cell in left) / MINUTES_PER_HOUR
        nodes = _span((machine.nodes(cell.ranks) for cell in left), str)
        noun = "node" if nodes == "1" else "nodes"
        parts.append(
            f"at most {_hours(most)}: {limit:g} min a run on {nodes} {noun}, none requeued"
        )
    return "; ".join(parts) or "not known: the profile sets no runtime"


def _duration(minutes: float) -> str:
    if minutes >= 3 * MINUTES_PER_HOUR:
        return f"{minutes / MINUTES_PER_HOUR:,.3g} h"
    return f"{max(1.0, minutes):.0f} min"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
