"""What `ulfm` does about losses: the launcher, and the ranks, which are threads here."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest
from numpy_framework import ALONE, Unasked
from struck_plans import loss, met, regrouped, struck
from threaded_mpi import Communicator, Job, MpiError

from ckptbench.common.errors import LaunchError
from ckptbench.failures.recovery import ulfm
from ckptbench.failures.recovery.contract import Regrouped, Verdict
from ckptbench.failures.recovery.ulfm import Ulfm, UlfmRank
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.control.link import Link
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position

T = TypeVar("T")


def with_recovery(plan: Plan, **options: bool) -> Plan:
    recovery = PluginSpec("ulfm", tuple(options.items()))
    cell = dataclasses.replace(plan.cell, framework="chainer", recovery=recovery)
    return dataclasses.replace(plan, cell=cell)


@pytest.fixture
def plan(struck_plan: Plan) -> Plan:
    """Survivors replace lost ranks. All three have met."""
    plan = with_recovery(struck_plan, replace=True)
    met(plan, 0, 1, 2)
    return plan


@pytest.mark.parametrize(
    "ranks",
    [(2,), (2, 1)],
    ids=["a survivor", "and the new process, which that ends with an error"],
)
def test_all_start_again_if_a_rank_is_lost_before_the_process_in_place_of_another_has_come(
    plan: Plan, ranks: tuple[int, ...]
) -> None:
    """The survivors wait for it in MPI, which would never answer."""
    struck(plan, 0, 1)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.GO_ON
    assert recovery.after(loss(*ranks), plan) == Verdict.RELAUNCH


def test_the_survivors_go_on_once_all_say_that_a_lost_rank_is_replaced(plan: Plan) -> None:
    struck(plan, 0, 1, 2)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.GO_ON
    met(plan, 1)
    regrouped(plan, 0, 1, 2)
    assert recovery.after(loss(2, left=(0, 1)), plan) == Verdict.GO_ON
    met(plan, 2)
    regrouped(plan, 0, 1)
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.RELAUNCH, "rank 2 has not said so"


def test_all_start_again_if_two_are_lost_at_once(plan: Plan) -> None:
    """The second one may have been lost while the first one was replaced."""
    struck(plan, 0, 1)
    assert Ulfm().after(loss(1, 2), plan) == Verdict.RELAUNCH


def test_a_process_that_fails_by_itself_ends_the_run(plan: Plan) -> None:
    struck(plan, 0)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.GO_ON
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.GIVE_UP


def test_earlier_attempts_have_no_part_in_it(plan: Plan) -> None:
    struck(plan, 0, 1, 2)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.GO_ON
    assert recovery.after(loss(2), plan) == Verdict.RELAUNCH
    again = dataclasses.replace(plan, attempt=2)
    met(again, 0, 1, 2)
    assert recovery.after(loss(1, left=(0, 2)), again) == Verdict.GO_ON


def test_without_replacement_nobody_waits(struck_plan: Plan) -> None:
    plan = with_recovery(struck_plan)
    met(plan, 0, 1, 2)
    struck(plan, 0, 1)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.GO_ON
    assert recovery.after(loss(2), plan) == Verdict.GO_ON


REACHED = Position(step=8, epoch=1, step_in_epoch=4)


def rank_of(job: Job, number: int) -> UlfmRank:
    place = dataclasses.replace(ALONE, rank=number, world_size=len(job.world.members))
    mpi4py = SimpleNamespace(rc=SimpleNamespace(finalize=True), MPI=job.of(number))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mpi4py", mpi4py)
        # The others are not there yet.
        patch.setattr(Communicator, "allgather", lambda *_: list(range(place.world_size)))
        return UlfmRank(place, Unasked(), {"replace": False})


def at_once(*does: Callable[[], T]) -> list[T]:
    """What each of them returns, or the error that it raises, in threads of their own."""
    with ThreadPoolExecutor(len(does)) as pool:
        return [future.result() for future in [pool.submit(each) for each in does]]


@pytest.fixture
def job() -> Job:
    return Job(3)


@pytest.fixture
def ranks(job: Job) -> list[UlfmRank]:
    """Three ranks that train."""
    return [rank_of(job, number) for number in range(3)]


def test_a_rank_that_is_lost_at_the_end_is_missed_by_all(job: Job, ranks: list[UlfmRank]) -> None:
    """By the one that has come to the end already, too, and waits for the others there."""
    first, second, _ = ranks

    def come_to_the_end() -> Regrouped:
        with pytest.raises(LaunchError, match="lost before all had come to the end") as error:
            first.finish()
        return first.regroup(error.value, REACHED)

    def fail_in_the_last_step() -> Regrouped:
        job.lose(2)
        with pytest.raises(MpiError) as error:
            second.barrier()
        return second.regroup(error.value, REACHED)

    for agreed in at_once(come_to_the_end, fail_in_the_last_step):
        assert (agreed.step, agreed.ranks) == (8, (0, 1))
    assert at_once(first.finish, second.finish) == [None, None]


def test_a_rank_that_is_lost_in_its_last_evaluation_is_missed_by_all(
    job: Job, ranks: list[UlfmRank]
) -> None:
    first, second, _ = ranks
    job.lose(2)

    def end(rank: UlfmRank) -> tuple[int, ...]:
        with pytest.raises(LaunchError) as error:
            rank.finish()
        return rank.regroup(error.value, REACHED).ranks

    assert at_once(lambda: end(first), lambda: end(second)) == [(0, 1)] * 2


def test_at_the_end_nobody_waits_for_one_that_is_lost_then(
    job: Job, ranks: list[UlfmRank], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first, second, third = ranks
    at_once(first.finish, second.finish, third.finish)
    job.lose(2)
    at_once(first._await_others, second._await_others)
    at_once(first._await_others, second._await_others)
    assert "a rank was lost at the end" not in caplog.text, "acknowledged"


def test_an_error_that_is_no_loss_ends_training(ranks: list[UlfmRank]) -> None:
    """Otherwise all would do the same step for ever."""

    def fail(rank: UlfmRank) -> None:
        def truncate() -> None:
            raise MpiError("MPI_ERR_TRUNCATE")

        with pytest.raises(MpiError) as error:
            rank._together(truncate)
        with pytest.raises(LaunchError, match="no rank is lost: MPI_ERR_TRUNCATE"):
            rank.regroup(error.value, REACHED)

    at_once(*(partial(fail, rank) for rank in ranks))


class Ended(BaseException):
    """This process is over."""


@pytest.fixture
def alone(job: Job, ranks: list[UlfmRank]) -> UlfmRank:
    """The first rank, when it is to replace both others."""
    first, *_ = ranks
    job.lose(1)
    job.lose(2)
    first.options = {"replace": True}
    first._broken = MpiError("MPI_ERR_PROC_FAILED")
    return first


def given_up(
    rank: UlfmRank, monkeypatch: pytest.MonkeyPatch, *, raises: bool = False
) -> threading.Event:
    """Set when the rank has hung up and ended itself. The latter `raises`, if this is the rank's main thread."""
    order, ended = [], threading.Event()
    rank.link = cast(Link, SimpleNamespace(hang_up=lambda: order.append("hung up")))

    def end() -> None:
        assert order == ["hung up"], "the launcher must know which rank ended first"
        ended.set()
        if raises:
            raise Ended

    monkeypatch.setattr(rank, "abort", end)
    return ended


@pytest.mark.parametrize("call", ["Spawn_multiple", "allgather"])
def test_a_process_that_never_comes_is_not_waited_for_for_ever(
    alone: UlfmRank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """Nor one that has come to MPI and gets no further."""
    ended = given_up(alone, monkeypatch)

    def wait(*_: object) -> None:
        assert ended.wait(60), "the wait has no limit"
        raise Ended

    whole = SimpleNamespace(allgather=wait)
    spawned = SimpleNamespace(Merge=lambda **_: whole)
    spawn = wait if call == "Spawn_multiple" else lambda *_: spawned
    monkeypatch.setattr(Communicator, "Spawn_multiple", spawn, raising=False)
    monkeypatch.setattr(ulfm, "COME_SECONDS", 0.05)
    with pytest.raises(Ended):
        alone.regroup(MpiError(), REACHED)
    assert "in place of rank 1 and rank 2 within 0.05 s" in caplog.text


def test_where_no_process_can_be_started_the_cause_is_said(
    alone: UlfmRank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits a while: if another rank was lost, the launcher has all start again."""
    given_up(alone, monkeypatch, raises=True)

    def refuse(*_: object) -> None:
        raise MpiError("MPI_ERR_SPAWN: there are not enough slots")

    monkeypatch.setattr(Communicator, "Spawn_multiple", refuse, raising=False)
    monkeypatch.setattr(ulfm, "VERDICT_SECONDS", 0.0)
    with pytest.raises(Ended):
        alone.regroup(MpiError(), REACHED)
    assert "a lost rank could not be replaced: MPI_ERR_SPAWN: there are" in caplog.text
