"""Which failures strike a run: those that the config lists, or those that are drawn from its seed."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.errors import ConfigError
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import FAULTS, STRATEGIES, SYNCED
from ckptbench.run.failure import Failure

STREAM = 11
"""Separates these draws from others of the same seed."""


def failures_of(
    cell: Cell,
    listed: Iterable[Failure],
    *,
    seed: int,
    nodes: Sequence[str],
    steps_per_epoch: int,
) -> tuple[Failure, ...]:
    """The failures that strike a run, in their order. `nodes` has the node of every rank, by rank.

    `listed` is the list that the cell's faults name, if they name one. Raises ConfigError where a listed failure has no
    victim in this run, or the run is too short for its kills.
    """
    if cell.faults.name == "listed":
        return tuple(_with_victim(each, nodes) for each in listed)
    if cell.is_killed:
        return kills_of(cell, seed=seed, steps_per_epoch=steps_per_epoch)
    return _in_time(cell.faults, seed=seed, nodes=nodes)


def _with_victim(failure: Failure, nodes: Sequence[str]) -> Failure:
    if not failure.victims(nodes):
        raise ConfigError(
            f"the failure {failure} has no victim: the run has {len(nodes)} ranks on {len(set(nodes))} nodes, "
            "both counted from 0; correct or remove it"
        )
    return failure


def _in_time(faults: PluginSpec, *, seed: int, nodes: Sequence[str]) -> tuple[Failure, ...]:
    """They depend on seed and nodes alone, so all recoveries, strategies and frameworks meet the same."""
    options: dict[str, Any] = faults.chosen(FAULTS[faults.name].options)
    if not options:
        return ()
    of = options["of"]
    units = len(nodes) if of == "rank" else len(set(nodes))
    drawn = first_failures(
        np.random.default_rng((seed, STREAM, units)),
        units,
        options["most"],
        mean_s=options["mean_s"],
        shape=options.get("shape", 1.0),
    )
    return tuple(
        Failure(
            second=second,
            rank=unit if of == "rank" else None,
            node=unit if of == "node" else None,
            kind=options["kind"],
            lasts_s=options["lasts_s"],
        )
        for second, unit in drawn
    )


def intervals(
    random: np.random.Generator, count: int, *, mean_s: float, shape: float
) -> NDArray[np.float64]:
    """Times between failures in seconds, `count` of them: Weibull-distributed with this mean and `shape`.

    Shape 1 is the exponential distribution; below 1 failures cluster. The scale is mean / Γ(1 + 1/shape).
    """
    scale = mean_s / math.gamma(1 + 1 / shape)
    return scale * random.weibull(shape, count)


def first_failures(
    random: np.random.Generator, units: int, most: int, *, mean_s: float, shape: float = 1.0
) -> list[tuple[float, int]]:
    """The first `most` failures of `units` units that are new at time 0: each its second and its unit, in their order.

    Every unit is as new after a failure. Its draws do not depend on the number of units after it.
    """
    times = [intervals(random, most, mean_s=mean_s, shape=shape).cumsum() for _ in range(units)]
    failures = [(float(second), unit) for unit, own in enumerate(times) for second in own]
    return sorted(failures)[:most]


def kills_of(cell: Cell, *, seed: int, steps_per_epoch: int) -> tuple[Failure, ...]:
    """The kills of a run for the resume proof, in the order of its attempts.

    The steps after the first checkpoint are divided into equal shares, one for each kill; those after the second one if
    checkpoints end in the background, because the first is surely there only when the second begins. After each kill at
    least one step is left to do. Raises ConfigError if the run is too short, or its checkpoints too rare.
    """
    entry, strategy = FAULTS[cell.faults.name], STRATEGIES[cell.strategy.name]
    steps, between = cell.epochs * steps_per_epoch, cell.interval.steps(steps_per_epoch)
    random = np.random.default_rng((seed, zlib.crc32(cell.reference.id.encode()), entry.kills))
    safe = between if strategy.blocking else 2 * between
    ends = np.linspace(safe, steps, entry.kills + 1).astype(int).tolist()
    shares = [range(first + 1, last + 1) for first, last in itertools.pairwise(ends)]
    due = [[step for step in share if step % between == 0] for share in shares]
    possible = [index for index, saved in enumerate(due) if saved]
    if len(possible) < entry.inside or not all(shares) or len(shares[-1]) == 1:
        raise ConfigError(
            f"a run of {steps} steps with a checkpoint every {between} is too short for the faults "
            f"{cell.faults}: give it more epochs or steps, or a shorter interval"
        )
    inside = random.permutation(possible)[: entry.inside].tolist()
    return tuple(
        _kill_inside(cell, random, due[index])
        if index in inside
        else _kill_between(cell, random, [step for step in share if step < steps])
        for index, share in enumerate(shares)
    )


def _kill_between(cell: Cell, random: np.random.Generator, done: Sequence[int]) -> Failure:
    return Failure(step=int(random.choice(done)), rank=int(random.integers(cell.ranks)))


def _kill_inside(cell: Cell, random: np.random.Generator, due: Sequence[int]) -> Failure:
    stage = str(random.choice([*STRATEGIES[cell.strategy.name].stages, SYNCED]))
    # Only rank 0 syncs and commits. The other ranks have passed their last stage by then.
    rank = 0 if stage == SYNCED else int(random.integers(cell.ranks))
    return Failure(step=int(random.choice(due)), moment="save", stage=stage, rank=rank)
