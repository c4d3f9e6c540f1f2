"""When units fail that fail again and again: seeded renewal processes, and the traces of failures drawn from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptbench.errors import ConfigError
from ckptbench.faults.failure import Failure
from ckptbench.matrix.catalogue import FAULTS
from ckptbench.matrix.variant import Variant

STREAM = 11
"""Separates these draws from others of the same seed."""


def intervals(
    random: np.random.Generator, count: int, *, mean_s: float, shape: float = 1.0
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


def failures_of(
    faults: Variant, listed: Iterable[Failure], *, seed: int, nodes: Sequence[str]
) -> tuple[Failure, ...]:
    """The failures that strike a run, in their order. `nodes` has the node of every rank, by rank.

    They depend on nothing else, so all recoveries, strategies and frameworks meet the same. `listed` is the list that
    `faults` names, if it names one.

    Raises ConfigError where a listed failure has no victim in this run.
    """
    if faults.name == "listed":
        return tuple(_with_victim(each, nodes) for each in listed)
    options: dict[str, Any] = faults.chosen(FAULTS[faults.name].options)
    if not options:
        return ()
    units = len(nodes) if options["of"] == "rank" else len(set(nodes))
    drawn = first_failures(
        np.random.default_rng((seed, STREAM, units)),
        units,
        options["most"],
        mean_s=options["mean_s"],
        shape=options.get("shape", 1.0),
    )
    of = options["of"]
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


def _with_victim(failure: Failure, nodes: Sequence[str]) -> Failure:
    if not failure.victims(nodes):
        raise ConfigError(
            f"the failure {failure.to_json()} strikes nobody: the run has {len(nodes)} ranks on {len(set(nodes))} nodes, "
            "both counted from 0; correct or remove it"
        )
    return failure
