"""The recovery torchft without the library: what its launcher decides, and when a rank asks for a quorum."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from test_elastic import loss, met, struck

from ckptbench.common.errors import LaunchError
from ckptbench.failures.recovery.contract import Verdict
from ckptbench.failures.recovery.torchft import (
    LIGHTHOUSE,
    NEW,
    QUORUM_S,
    Quorum,
    TorchFt,
    TorchFtRank,
)
from ckptbench.frameworks.contract import Framework
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import RECOVERIES
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.failure import Failure
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position


class Manager:
    """What torchft's manager says, as far as a rank asks. `quorums` are the ranks of those to come; [] fails."""

    def __init__(self, quorum: Quorum, quorums: list[Sequence[int]]) -> None:
        self._quorum = quorum
        self._quorums = quorums
        self._step = 0
        self._failed: SimpleNamespace | None = None
        self.asked = 0
        self.fails_next: Exception | None = None

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._step = state["step"]

    def start_quorum(self) -> None:
        self.asked += 1
        self._failed = None
        if self._quorums:
            ranks = self._quorums.pop(0)
            if ranks:
                self._quorum.change(ranks)
            else:
                self.report_error(RuntimeError("no connection"))

    def errored(self) -> SimpleNamespace | None:
        return self._failed

    def report_error(self, error: Exception) -> None:
        self._failed = SimpleNamespace(original_exception=error)

    def should_commit(self) -> bool:
        self._step += self._failed is None
        return self._failed is None

    def current_step(self) -> int:
        return self._step

    def allreduce(self, gradient: Any) -> SimpleNamespace:
        gradient *= 2
        if self.fails_next is not None:
            self.report_error(self.fails_next)
            self.fails_next = None
        return SimpleNamespace(wait=lambda: None)


class Group:
    aborted = 0

    def abort(self) -> None:
        self.aborted += 1


class Rank(TorchFtRank):
    """A rank with fakes in place of torchft's objects."""

    quorums: list[Sequence[int]]

    def _open(self, step: int) -> None:
        self._manager = Manager(self._quorum, self.quorums)
        self._manager.load_state_dict({"step": step})
        self._group = Group()
        self._torch = SimpleNamespace(from_numpy=lambda array: array)


class FakeLink:
    def __init__(self, *, is_replacement: bool = False) -> None:
        self.is_replacement = is_replacement
        self.joined = 0

    def join(self) -> None:
        self.joined += 1


OPTIONS = PluginSpec("torchft").chosen(RECOVERIES["torchft"].options)


def world(*nodes: str) -> RankContext:
    names = nodes or ("here",) * 3
    return RankContext(
        rank=0, world_size=3, local_rank=0, node="here", threads=1, addresses=("x:1",) * 3, nodes=names
    )  # fmt: skip


def at(step: int) -> Position:
    return Position(step=step, epoch=0, step_in_epoch=step)


def made(*quorums: Sequence[int], is_replacement: bool = False) -> Rank:
    rank = Rank(world(), cast(Link, FakeLink(is_replacement=is_replacement)), OPTIONS)
    rank.quorums = list(quorums)
    rank.adopt(cast(Framework, SimpleNamespace()))
    return rank


def average(rank: Rank) -> np.ndarray[Any, Any]:
    gradient = np.ones(2, np.float32)
    assert rank.framework.average is not None
    rank.framework.average([gradient])
    return gradient


@pytest.fixture
def struck_plan(make_plan: Callable[..., Plan]) -> Plan:
    plan = make_plan("never")
    failures = (Failure(step=4, rank=1), Failure(step=6, rank=2))
    cell = dataclasses.replace(plan.cell, ranks=3, faults=PluginSpec("listed", (("name", "x"),)))
    return dataclasses.replace(plan, cell=cell, listed=failures, failures=failures)


def test_a_lost_rank_is_replaced_as_long_as_others_train(struck_plan: Plan) -> None:
    met(struck_plan, 0, 1, 2)
    struck(struck_plan, 0, 1)
    recovery = TorchFt()
    assert recovery.after(loss(1), struck_plan) == Verdict.REPLACE
    assert recovery.after(loss(2, left=()), struck_plan) == Verdict.RELAUNCH
    assert recovery.after(loss(2), struck_plan) == Verdict.GIVE_UP


def test_a_lighthouse_that_does_not_start_is_one_error(struck_plan: Plan) -> None:
    recovery = TorchFt()
    recovery.command([sys.executable], struck_plan)  # which has no torchft
    with (
        pytest.raises(LaunchError, match="lighthouse ended with exit status 1"),
        recovery.environment(),
    ):
        pass


def test_ranks_on_several_nodes_are_refused() -> None:
    with pytest.raises(LaunchError, match="on one host only"):
        TorchFtRank(world("here", "here", "there"), cast(Link, FakeLink()), {})


def test_ranks_that_begin_together_wait_for_all() -> None:
    rank = made((0,), (0, 2), (0, 1, 2))
    assert rank.join(at(0)) is None
    assert rank._manager.asked == 3
    assert rank.admit(at(0)) is None, "the quorum of the first step is there"
    assert rank._manager.asked == 3


def test_a_step_asks_once_and_ends_with_the_average() -> None:
    rank = made((0, 1, 2))
    rank.join(at(7))
    assert average(rank).tolist() == [2, 2]
    assert rank._manager.current_step() == 8
    assert rank.admit(at(8)) is None
    assert rank.admit(at(8)) is None
    assert rank._manager.asked == 2


def test_a_rank_that_comes_again_joins_and_all_see_that_it_is_new() -> None:
    rank = made((0, 1 + NEW, 2))
    regrouped = rank.join(at(0))
    assert regrouped is not None
    assert regrouped.ranks == (0, 1, 2)
    new = made((NEW,), (NEW, 1, 2), is_replacement=True)
    again = new.join(at(0))
    assert again is not None
    assert again.ranks == (0, 1, 2)
    assert cast(FakeLink, new.link).joined == 1


def test_another_quorum_before_a_step_is_an_agreement_of_all() -> None:
    rank = made((0, 1, 2), (0, 1, 2), (0, 2))
    rank.join(at(0))
    average(rank)
    same = rank.admit(at(1))
    assert same is not None, "the connections are new, and all must begin to use them together"
    assert (same.step, same.ranks) == (1, (0, 1, 2))
    average(rank)
    fewer = rank.admit(at(2))
    assert fewer is not None
    assert (fewer.step, fewer.ranks) == (2, (0, 2))


def test_a_step_in_which_a_rank_is_lost_does_not_count() -> None:
    rank = made((0, 1, 2), (0, 2))
    rank.join(at(4))
    rank._manager.fails_next = lost = RuntimeError("closed by peer")
    with pytest.raises(RuntimeError, match="closed by peer"):
        average(rank)
    assert rank._group.aborted == 1, "the others may wait for this rank"
    assert rank._manager.current_step() == 4
    regrouped = rank.regroup(lost, at(4))
    assert (regrouped.step, regrouped.ranks) == (4, (0, 2))
    assert rank.admit(at(4)) is None, "the quorum of the step is there"
    assert average(rank).tolist() == [2, 2]
    assert rank._manager.current_step() == 5


def test_a_quorum_without_connections_is_asked_for_again() -> None:
    rank = made((0, 1, 2), (), (0, 2))
    rank.join(at(4))
    average(rank)
    regrouped = rank.admit(at(5))
    assert regrouped is not None
    assert (regrouped.step, regrouped.ranks) == (5, (0, 2))
    assert rank._group.aborted == 1


def test_a_rank_that_never_gets_a_connection_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIGHTHOUSE, "http://127.0.0.1:1")
    monkeypatch.setattr("ckptbench.failures.recovery.torchft.QUORUM_S", -QUORUM_S)
    rank = made((0, 1, 2), ())
    rank.join(at(4))
    average(rank)
    with pytest.raises(LaunchError, match=r"no connection to the ranks \(0, 1, 2\)"):
        rank.admit(at(5))


def test_an_error_of_its_own_is_raised_again() -> None:
    rank = made((0, 1, 2))
    rank.join(at(0))
    with pytest.raises(ValueError, match="mine"):
        rank.regroup(ValueError("mine"), at(0))
