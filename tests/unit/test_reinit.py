"""What `reinit` does about losses: the launcher, and the ranks, which are threads here over a real control connection."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest
from control_links import PATIENCE_S, MakeServer, open_link, open_links, wait_for
from numpy_framework import ALONE
from stored_versions import write
from struck_plans import loss, met, regrouped, struck

from ckptbench.checkpointing.levels import open_levels
from ckptbench.common.errors import CheckpointError, LaunchError
from ckptbench.failures.recovery.contract import Regrouped, Verdict
from ckptbench.failures.recovery.reinit import Reinit, ReinitRank, tells_of_a_loss, whole_step
from ckptbench.frameworks.contract import Framework
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.control.server import ControlServer
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position

LOSS = RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")
AT = Position(step=7, epoch=1, step_in_epoch=1)


@pytest.fixture
def plan(struck_plan: Plan) -> Plan:
    """All three ranks have met, and there is a version."""
    cell = dataclasses.replace(struck_plan.cell, framework="pytorch", recovery=PluginSpec("reinit"))
    plan = dataclasses.replace(struck_plan, cell=cell)
    met(plan, 0, 1, 2)
    write(open_levels(plan).shared, 4)
    return plan


def test_each_lost_rank_is_replaced_once_all_are_there_again(plan: Plan) -> None:
    struck(plan, 0, 1)
    recovery = Reinit()
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.REPLACE
    met(plan, 1)
    regrouped(plan, 0, 1, 2)
    assert recovery.after(loss(2, left=(0, 1)), plan) == Verdict.REPLACE


def test_without_a_version_all_start_again(plan: Plan) -> None:
    struck(plan, 0)
    open_levels(plan).clear()
    assert Reinit().after(loss(1, left=(0, 2)), plan) == Verdict.RELAUNCH


def test_all_start_again_if_one_is_lost_before_all_have_met(plan: Plan) -> None:
    """The others may wait for it in Gloo. They may also end with an error, which no failure explains."""
    struck(plan, 0)
    recovery = Reinit()
    assert recovery.after(loss(1, left=(0, 2)), plan) == Verdict.REPLACE
    assert recovery.after(loss(2, left=(0,)), plan) == Verdict.RELAUNCH


def test_a_death_that_no_failure_explains_ends_the_run(plan: Plan) -> None:
    assert Reinit().after(loss(1, left=(0, 2)), plan) == Verdict.GIVE_UP


class Group:
    """The group of a framework: who has left it, and where it was made anew."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def disconnect(self) -> None:
        self.calls.append("disconnect")

    def reconnect(self, world: RankContext) -> None:
        self.calls.append(f"reconnect at {world.addresses}")

    def close(self) -> None:
        raise LOSS


def rank_of(link: Link, rank: int) -> ReinitRank:
    world = dataclasses.replace(ALONE, rank=rank, world_size=3, addresses=("127.0.0.1:1",) * 3)
    recovery = ReinitRank(world, link, {"state": "version"})
    recovery.adopt(cast(Framework, Group()))
    return recovery


def newcomer(server: ControlServer) -> Regrouped | None:
    recovery = rank_of(unending(open_link(server, 1, "a")), 1)
    return recovery.join(Position(step=0, epoch=0, step_in_epoch=0))


@pytest.fixture
def ranks(make_server: MakeServer) -> tuple[ControlServer, list[ReinitRank]]:
    """Three ranks that train."""
    server = make_server("a", "a", "a")
    return server, [
        rank_of(unending(link), i) for i, link in enumerate(open_links(server, "a", "a", "a"))
    ]


def unending(link: Link) -> Link:
    """Its listener would end this process with the launcher, as it should a rank's."""
    link._closing = True
    return link


def lose(server: ControlServer, ranks: list[ReinitRank]) -> None:
    ranks[1].link.hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1], replaced=True)


def calls(recovery: ReinitRank) -> list[str]:
    return cast(Group, recovery.framework).calls


def test_survivors_meet_the_new_one_at_new_addresses_and_all_go_back_to_a_version(
    ranks: tuple[ControlServer, list[ReinitRank]],
) -> None:
    server, (first, lost, last) = ranks
    with ThreadPoolExecutor(3) as pool:
        going_on = [pool.submit(each.regroup, LOSS, AT) for each in (first, last)]
        lose(server, [first, lost, last])
        going_on.append(pool.submit(newcomer, server))
        agreed = [each.result(PATIENCE_S) for each in going_on]
    assert [(each.step, each.ranks) for each in agreed if each] == [(None, (0, 1, 2))] * 3
    assert calls(first) == calls(last)
    assert calls(first) == ["disconnect", f"reconnect at {first.world.addresses}"]
    assert len(set(first.world.addresses)) == 3
    assert "127.0.0.1:1" not in first.world.addresses


def test_a_rank_at_the_end_comes_back_where_the_step_of_another_has_failed(
    ranks: tuple[ControlServer, list[ReinitRank]],
) -> None:
    """It had the last sum, and the other one had not."""
    server, (first, lost, last) = ranks
    with ThreadPoolExecutor(3) as pool:
        ending = pool.submit(first.finish)
        failing = pool.submit(last.regroup, LOSS, AT)
        lose(server, [first, lost, last])
        error = ending.exception(PATIENCE_S)
        assert isinstance(error, LaunchError)
        others: list[Future[Regrouped | None]] = [pool.submit(first.regroup, error, AT)]
        others.append(pool.submit(newcomer, server))
        assert [each.result(PATIENCE_S) is None for each in (failing, *others)] == [False] * 3


def test_nobody_goes_on_before_one_that_was_at_the_end_has_come_back(
    ranks: tuple[ControlServer, list[ReinitRank]],
) -> None:
    """The new one is there before the other survivor has noticed the loss."""
    server, (first, lost, last) = ranks
    with ThreadPoolExecutor(4) as pool:
        ending = pool.submit(first.finish)
        wait_for(lambda: server._ranks[0].given)
        lose(server, [first, lost, last])
        coming = pool.submit(newcomer, server)
        wait_for(lambda: server._ranks[1].given)
        failing = pool.submit(last.regroup, LOSS, AT)
        error = ending.exception(PATIENCE_S)
        assert isinstance(error, LaunchError)
        wait_for(lambda: server._ranks[2].given)
        assert calls(last) == ["disconnect"]
        assert pool.submit(first.regroup, error, AT).result(PATIENCE_S).ranks == (0, 1, 2)
        assert None not in (coming.result(PATIENCE_S), failing.result(PATIENCE_S))


def test_a_rank_that_is_lost_before_it_has_come_to_the_end_is_missed_by_all(
    ranks: tuple[ControlServer, list[ReinitRank]],
) -> None:
    server, (first, lost, last) = ranks
    with ThreadPoolExecutor(2) as pool:
        ending = [pool.submit(each.finish) for each in (first, last)]
        lose(server, [first, lost, last])
        for each in ending:
            assert isinstance(each.exception(PATIENCE_S), LaunchError)


def test_one_that_is_lost_when_all_are_at_the_end_is_missed_by_none(
    ranks: tuple[ControlServer, list[ReinitRank]],
) -> None:
    server, (first, lost, last) = ranks

    def together(calls: list[Callable[[], None]]) -> None:
        with ThreadPoolExecutor(len(calls)) as pool:
            for each in [pool.submit(call) for call in calls]:
                each.result(PATIENCE_S)

    together([first.finish, lost.finish, last.finish])
    lose(server, [first, lost, last])
    late = unending(open_link(server, 1, "a"))
    together([first.close, last.close])
    joining = threading.Thread(target=late.join, daemon=True)
    joining.start()
    for each in (first, last):
        each.link.close()
    wait_for(lambda: server.all_parted)
    assert joining.is_alive()


@pytest.mark.parametrize("error", [ValueError("odd"), CheckpointError("the disk is full")])
def test_an_error_of_its_own_is_raised_at_once(
    ranks: tuple[ControlServer, list[ReinitRank]], error: Exception
) -> None:
    _, (first, *_) = ranks
    with pytest.raises(type(error)):
        first.regroup(error, AT)
    assert calls(first) == []


def test_where_no_rank_is_lost_the_error_of_each_is_raised(
    ranks: tuple[ControlServer, list[ReinitRank]],
) -> None:
    with ThreadPoolExecutor(3) as pool:
        failing = [pool.submit(each.regroup, LOSS, AT) for each in ranks[1]]
        assert [each.exception(PATIENCE_S) for each in failing] == [LOSS] * 3


def test_an_error_that_was_raised_because_of_a_loss_tells_of_it() -> None:
    error = CheckpointError("the checkpoint of step 4 cannot be written")
    assert not tells_of_a_loss(error)
    error.__cause__ = LOSS
    assert tells_of_a_loss(error)


@pytest.mark.parametrize(
    ("parts", "steps", "step"),
    [
        (1, {0: 7, 2: 7}, 7),
        (1, {0: 7, 2: 8}, 8),
        (3, {0: 7, 2: 7}, None),
        (2, {0: 7, 2: 7, 3: 7}, 7),
        (2, {0: 8, 2: 7, 3: 7}, 7),
        (2, {0: 8, 2: 8, 3: 7}, None),
    ],
    ids=["replicas", "one is ahead", "shards", "hybrid", "one of two", "a shard is lost at that step"],
)  # fmt: skip
def test_the_step_is_known_of_which_survivors_hold_every_part(
    parts: int, steps: dict[int, int], step: int | None
) -> None:
    assert whole_step(steps, parts) == step


@pytest.mark.parametrize(
    ("framework", "ranks", "verdict"),
    [
        ("pytorch", 3, Verdict.REPLACE),
        ("pytorch_fsdp", 3, Verdict.RELAUNCH),
        ("pytorch_hsdp", 4, Verdict.REPLACE),
        ("pytorch_hsdp", 2, Verdict.REPLACE),
    ],
)
def test_without_a_version_it_goes_on_where_others_hold_what_was_lost(
    plan: Plan, framework: str, ranks: int, verdict: Verdict
) -> None:
    open_levels(plan).clear()
    recovery = PluginSpec("reinit", (("state", "replica"),))
    cell = dataclasses.replace(plan.cell, framework=framework, ranks=ranks, recovery=recovery)
    plan = dataclasses.replace(plan, cell=cell)
    met(plan, 3)
    struck(plan, 0)
    assert Reinit().after(loss(1, left=(0,)), plan) == verdict


def test_close_raises_what_is_no_loss() -> None:
    def fail() -> None:
        raise RuntimeError("odd")

    link = cast(Link, SimpleNamespace(is_replacement=False, finish=lambda: None))
    recovery = rank_of(link, 0)
    recovery.adopt(cast(Framework, SimpleNamespace(close=fail)))
    with pytest.raises(RuntimeError, match="odd"):
        recovery.close()
