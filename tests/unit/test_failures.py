"""Traces of failures: drawn from a seed, listed in a config, and the same for whoever meets them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from ckptbench.common.errors import ConfigError
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.failure import Failure
from ckptbench.run.schedule import failures_of, first_failures, intervals

NODES = ["a", "a", "b", "b"]
BASELINE = Cell(
    framework="pytorch", model="small_cnn", dataset="digits", ranks=4, batch_size=8, epochs=1, format="none",
    interval=NEVER,
)  # fmt: skip
DRAWN = PluginSpec("exponential", (("mean_s", 20.0), ("most", 5)))


LISTED = PluginSpec("listed", (("name", "x"),))


def drawn(
    faults: PluginSpec,
    listed: Iterable[Failure] = (),
    *,
    seed: int = 1,
    nodes: Sequence[str] = NODES,
) -> tuple[Failure, ...]:
    struck = dataclasses.replace(BASELINE, faults=faults)
    return failures_of(struck, listed, seed=seed, nodes=nodes, steps_per_epoch=9)


@pytest.mark.parametrize("shape", [0.5, 0.7, 1.0, 2.0])
def test_times_between_failures_have_the_mean_and_the_spread_of_their_distribution(
    shape: float,
) -> None:
    drawn = intervals(np.random.default_rng(1), 200_000, mean_s=30.0, shape=shape)
    assert drawn.mean() == pytest.approx(30, rel=0.02)
    first, second = (math.gamma(1 + power / shape) for power in (1, 2))
    assert drawn.std() / drawn.mean() == pytest.approx(math.sqrt(second / first**2 - 1), rel=0.03)


def test_units_that_are_more_fail_so_much_more_often() -> None:
    random = np.random.default_rng(1)
    alone, many = (
        np.mean([first_failures(random, units, 1, mean_s=60.0)[0][0] for _ in range(4000)])
        for units in (1, 6)
    )
    assert alone / many == pytest.approx(6, rel=0.1)


def test_a_trace_depends_on_the_seed_and_the_nodes_alone() -> None:
    one = drawn(DRAWN)
    assert one == drawn(DRAWN, nodes=["c", "d", "e", "f"])
    assert one != drawn(DRAWN, seed=2)
    seconds = [failure.second for failure in one]
    assert len(one) == 5
    assert seconds == sorted(seconds, key=float)  # type: ignore[arg-type]
    assert {failure.rank for failure in one} <= {0, 1, 2, 3}


def test_nodes_fail_as_units_of_their_own() -> None:
    of_nodes = dataclasses.replace(DRAWN, options=(("most", 50), ("of", "node")))
    failures = drawn(of_nodes)
    assert {failure.node for failure in failures} == {0, 1}
    assert {failure.victims(NODES) for failure in failures} == {(0, 1), (2, 3)}


def test_a_run_without_faults_has_no_failures() -> None:
    assert drawn(PluginSpec("none")) == ()


def test_a_listed_failure_survives_the_way_through_a_file() -> None:
    for failure in (
        Failure(second=2.5, rank=1, kind="hang", lasts_s=9.0),
        Failure(step=4, moment="save", node=0),
        Failure(step=4, moment="save", stage="written", rank=0),
        Failure(moment="recovery", rank=0, delay_s=1.0),
    ):
        assert Failure.from_json(failure.to_json()) == failure
        assert drawn(LISTED, [failure]) == (failure,)


@pytest.mark.parametrize("victim", [{"rank": 4}, {"node": 2}])
def test_a_failure_that_strikes_nobody_is_refused(victim: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="has no victim: the run has 4 ranks on 2 nodes"):
        drawn(LISTED, [Failure(step=1, **victim)])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"step": 1}, "hits a rank or a node"),
        ({"step": 1, "rank": 0, "node": 0}, "hits a rank or a node"),
        ({"rank": 0}, "at a second or at a step"),
        ({"rank": 0, "step": 1, "second": 1.0}, "at a second or at a step"),
        ({"rank": 0, "step": 1, "moment": "recovery"}, "neither second nor step"),
        ({"rank": 0, "second": 1.0, "moment": "save"}, "has no moment save"),
    ],
)
def test_a_failure_has_one_victim_and_one_time(fields: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Failure(**fields)  # type: ignore[arg-type]
