"""What the launcher decides where survivors may go on by themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_framework import ALONE
from struck_plans import loss, met, struck

from ckptbench.failures.recovery.contract import Verdict, next_attempt
from ckptbench.failures.recovery.elastic import AveragingRank, Elastic
from ckptbench.frameworks.contract import Framework
from ckptbench.run.control.link import Link
from ckptbench.run.events import Struck
from ckptbench.run.layout import strikes_path
from ckptbench.run.plan import Plan
from ckptbench.run.recorder import Recorder


def test_the_survivors_go_on_until_nobody_is_left(struck_plan: Plan) -> None:
    met(struck_plan, 0, 1, 2)
    struck(struck_plan, 0, 1, 2)
    recovery = Elastic()
    assert recovery.after(loss(1, left=(0, 2)), struck_plan) == Verdict.GO_ON
    assert recovery.after(loss(2), struck_plan) == Verdict.GO_ON
    assert recovery.after(loss(0, left=()), struck_plan) == Verdict.RELAUNCH
    assert next_attempt(struck_plan, None, attempt=2).attempt == 2


def test_ranks_that_have_not_met_yet_start_again(struck_plan: Plan) -> None:
    met(struck_plan, 0, 2)
    struck(struck_plan, 0)
    assert Elastic().after(loss(1), struck_plan) == Verdict.RELAUNCH
    met(struck_plan, 1)
    assert Elastic().after(loss(1), struck_plan) == Verdict.GO_ON
    later = dataclasses.replace(struck_plan, attempt=2)
    assert Elastic().after(loss(1), later) == Verdict.RELAUNCH


def test_a_loss_that_no_failure_of_this_rank_explains_ends_the_run(struck_plan: Plan) -> None:
    met(struck_plan, 0, 1, 2)
    assert Elastic().after(loss(1), struck_plan) == Verdict.GIVE_UP
    struck(struck_plan, 1)
    assert Elastic().after(loss(1), struck_plan) == Verdict.GIVE_UP
    assert Elastic().after(loss(), struck_plan) == Verdict.GIVE_UP
    recovery = Elastic()
    assert recovery.after(loss(2), struck_plan) == Verdict.GO_ON
    assert recovery.after(loss(2), struck_plan) == Verdict.GIVE_UP, "one failure explains one loss"


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


def test_a_hang_that_has_passed_explains_no_loss(struck_plan: Plan) -> None:
    met(struck_plan, 0, 1, 2)
    struck(struck_plan, 0, kind="hang")
    recorder = Recorder(strikes_path(struck_plan.run_folder, 0))
    recorder.write(Struck(failure=0, monotonic_ns=2, unix_ns=2))
    recorder.close()
    assert Elastic().after(loss(1), struck_plan) == Verdict.GIVE_UP
    hanging = dataclasses.replace(loss(1), hangs=True)
    assert Elastic().after(hanging, struck_plan) == Verdict.GO_ON


def test_a_failure_before_this_attempt_explains_no_loss_to_another_launcher(
    struck_plan: Plan,
) -> None:
    """As after a requeue: the launcher that saw what the failure explained is gone."""
    met(struck_plan, 0, 1, 2)
    struck(struck_plan, 0)
    assert Elastic().after(loss(1), struck_plan) == Verdict.GO_ON
    resumed = dataclasses.replace(struck_plan, strikes=1)
    assert Elastic().after(loss(1), resumed) == Verdict.GIVE_UP
