"""What the launcher decides where survivors may go on by themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_framework import ALONE

from ckptbench.frameworks.contract import Framework
from ckptbench.matrix.variant import Variant
from ckptbench.recovery.contract import GiveUp, GoOn, Loss, Relaunch
from ckptbench.recovery.elastic import AveragingRank, Elastic
from ckptbench.runs.events import Start, Strike
from ckptbench.runs.layout import strikes_path, trace_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.recorder import Recorder
from ckptbench.world.link import Link

FAILURES = ({"step": 4, "rank": 1}, {"step": 6, "rank": 2}, {"step": 8, "node": 0})


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    plan = make_plan("never")
    fields = {"ranks": 3, "faults": Variant("listed", (("name", "x"),))}
    cell = dataclasses.replace(plan.cell, **fields)
    return dataclasses.replace(plan, cell=cell, listed=FAILURES, failures=FAILURES)


def met(plan: Plan, *ranks: int) -> None:
    for rank in ranks:
        start = Start(
            attempt=plan.attempt, rank=rank, world_size=3, host="here", pid=1, device="cpu",
            monotonic_ns=1, unix_ns=1, versions={},
        )  # fmt: skip
        recorder = Recorder(trace_path(plan.run_folder, rank))
        recorder.write(start)
        recorder.close()


def struck(plan: Plan, *failures: int, kind: str = "kill") -> None:
    recorder = Recorder(strikes_path(plan.run_folder, 0))
    for failure in failures:
        strike = Strike(
            failure=failure, kind=kind, attempt=1, pids=[1], monotonic_ns=1, unix_ns=failure
        )
        recorder.write(strike)
    recorder.close()


def loss(*ranks: int, left: tuple[int, ...] = (0,)) -> Loss:
    return Loss(ranks=ranks, how="died", left=left)


def test_the_survivors_go_on_until_nobody_is_left(plan: Plan) -> None:
    met(plan, 0, 1, 2)
    struck(plan, 0, 1, 2)
    recovery = Elastic()
    assert recovery.after(loss(1, left=(0, 2)), plan) == GoOn()
    assert recovery.after(loss(2), plan) == GoOn()
    assert recovery.after(loss(0, left=()), plan) == Relaunch()
    assert recovery.next_attempt(plan, None).attempt == 2


def test_ranks_that_have_not_met_yet_start_again(plan: Plan) -> None:
    met(plan, 0, 2)
    struck(plan, 0)
    assert Elastic().after(loss(1), plan) == Relaunch()
    met(plan, 1)
    assert Elastic().after(loss(1), plan) == GoOn()
    later = dataclasses.replace(plan, attempt=2)
    assert Elastic().after(loss(1), later) == Relaunch()


def test_a_loss_that_no_failure_of_this_rank_explains_ends_the_run(plan: Plan) -> None:
    met(plan, 0, 1, 2)
    assert Elastic().after(loss(1), plan) == GiveUp("died")
    struck(plan, 1)
    assert Elastic().after(loss(1), plan) == GiveUp("died")
    assert Elastic().after(loss(), plan) == GiveUp("died")
    recovery = Elastic()
    assert recovery.after(loss(2), plan) == GoOn()
    assert recovery.after(loss(2), plan) == GiveUp("died"), "one failure explains one loss"


class Averaging(AveragingRank):
    """Of three ranks that all have the same gradients."""

    def average(self, gradients: Sequence[NDArray[np.float32]]) -> None:
        pass


@pytest.mark.parametrize(
    ("learning_rate", "part_read", "counts"),
    [("scaled", 1.0, 6.0), ("scaled", 2 / 3, 4.0), ("kept", 2 / 3, 6.0)],
)
def test_a_gradient_of_fewer_samples_counts_less_where_the_learning_rate_is_scaled(
    learning_rate: str, part_read: float, counts: float
) -> None:
    rank = Averaging(ALONE, cast(Link, None), {"learning_rate": learning_rate})
    framework = SimpleNamespace(average=None)
    rank.adopt(cast(Framework, framework))
    rank.part_read = part_read
    gradients = np.full((3, 2), 6, np.float32)[:, ::2], np.full(2, 6, np.float32)
    assert framework.average is not None
    framework.average(gradients)
    assert [np.unique(each).tolist() for each in gradients] == [[pytest.approx(counts)]] * 2


def test_a_slow_rank_explains_no_loss(plan: Plan) -> None:
    met(plan, 0, 1, 2)
    struck(plan, 0, kind="slow")
    assert Elastic().after(loss(1), plan) == GiveUp("died")
