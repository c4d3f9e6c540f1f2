"""What `ulfm` does where survivors start processes in place of lost ranks."""

from __future__ import annotations

import dataclasses
import sys
import threading
from types import SimpleNamespace
from typing import cast

import pytest
from numpy_framework import ALONE
from struck_plans import loss, met, struck

from ckptbench.matrix.variant import Variant
from ckptbench.recovery import ulfm
from ckptbench.recovery.contract import GiveUp, GoOn, Relaunch
from ckptbench.recovery.ulfm import Ulfm, UlfmRank
from ckptbench.runs.events import Regroup
from ckptbench.runs.layout import trace_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.recorder import Recorder
from ckptbench.world.link import Link


def with_recovery(plan: Plan, **options: bool) -> Plan:
    recovery = Variant("ulfm", tuple(options.items()))
    cell = dataclasses.replace(plan.cell, framework="chainer", recovery=recovery)
    return dataclasses.replace(plan, cell=cell)


@pytest.fixture
def plan(struck_plan: Plan) -> Plan:
    """Survivors replace lost ranks. All three have met."""
    plan = with_recovery(struck_plan, replace=True)
    met(plan, 0, 1, 2)
    return plan


def regrouped(plan: Plan, *ranks: int) -> None:
    for rank in ranks:
        recorder = Recorder(trace_path(plan.run_folder, rank))
        recorder.write(Regroup(step=4, reached=4, noticed_ns=1, agreed_ns=2, ready_ns=3, bytes=0))
        recorder.close()


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
    assert recovery.after(loss(1, left=(0, 2)), plan) == GoOn()
    assert recovery.after(loss(*ranks), plan) == Relaunch()


def test_the_survivors_go_on_once_all_say_that_a_lost_rank_is_replaced(plan: Plan) -> None:
    struck(plan, 0, 1, 2)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == GoOn()
    met(plan, 1)
    regrouped(plan, 0, 1, 2)
    assert recovery.after(loss(2, left=(0, 1)), plan) == GoOn()
    met(plan, 2)
    regrouped(plan, 0, 1)
    assert recovery.after(loss(1, left=(0, 2)), plan) == Relaunch(), "rank 2 has not said so"


def test_all_start_again_if_two_are_lost_at_once(plan: Plan) -> None:
    """The second one may have been lost while the first one was replaced."""
    struck(plan, 0, 1)
    assert Ulfm().after(loss(1, 2), plan) == Relaunch()


def test_a_process_that_fails_by_itself_ends_the_run(plan: Plan) -> None:
    struck(plan, 0)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == GoOn()
    assert recovery.after(loss(1, left=(0, 2)), plan) == GiveUp("died")


def test_earlier_attempts_have_no_part_in_it(plan: Plan) -> None:
    struck(plan, 0, 1, 2)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == GoOn()
    assert recovery.after(loss(2), plan) == Relaunch()
    again = dataclasses.replace(plan, attempt=2)
    met(again, 0, 1, 2)
    assert recovery.after(loss(1, left=(0, 2)), again) == GoOn()


def test_without_replacement_nobody_waits(struck_plan: Plan) -> None:
    plan = with_recovery(struck_plan)
    met(plan, 0, 1, 2)
    struck(plan, 0, 1)
    recovery = Ulfm()
    assert recovery.after(loss(1, left=(0, 2)), plan) == GoOn()
    assert recovery.after(loss(2), plan) == GoOn()


class MpiError(Exception):
    pass


def lonely_world(ended: threading.Event) -> SimpleNamespace:
    """A communicator whose first rank alone is left, and in which no process comes up."""

    def spawn(*_: object) -> None:
        assert ended.wait(60), "the wait has no limit"
        raise MpiError

    world = SimpleNamespace(rank=0, size=1, Revoke=lambda: None, Spawn_multiple=spawn)
    world.Dup = world.Shrink = lambda: world
    world.allgather = lambda value: [value]
    return world


def test_a_process_that_never_comes_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended, hung_up = threading.Event(), threading.Event()
    none = object()
    mpi = SimpleNamespace(
        COMM_NULL=none,
        COMM_WORLD=lonely_world(ended),
        Comm=SimpleNamespace(Get_parent=lambda: none),
        Exception=MpiError,
    )
    monkeypatch.setitem(
        sys.modules, "mpi4py", SimpleNamespace(rc=SimpleNamespace(finalize=True), MPI=mpi)
    )
    monkeypatch.setattr(ulfm, "COME_SECONDS", 0.05)
    link = cast(Link, SimpleNamespace(hang_up=hung_up.set))
    rank = UlfmRank(ALONE, link, {"replace": True})
    rank.place = dataclasses.replace(ALONE, world_size=2)
    monkeypatch.setattr(rank, "abort", ended.set)
    with pytest.raises(MpiError):
        rank._make_whole()
    assert hung_up.is_set(), "the launcher must know which rank ended first"
    assert "in place of rank 1 within 0.05 s" in caplog.text
