"""The launcher of a struck run: it restarts after failures that were planned, and says which did not strike."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from run_folders import cell

from ckptbench.errors import LaunchError
from ckptbench.matrix.variant import Variant
from ckptbench.recovery.contract import GiveUp, Loss, Relaunch
from ckptbench.recovery.restart import Restart
from ckptbench.runs.events import Event, Rested, Strike, Struck
from ckptbench.runs.layout import strikes_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.recorder import Recorder
from ckptbench.runs.strikes import check_struck
from ckptbench.runs.training import Training

LISTED = Variant("listed", (("name", "two"),))
FAILURES = ({"step": 4, "rank": 0, "kind": "kill"}, {"second": 60.0, "rank": 0, "kind": "slow"})
LOSS = Loss(ranks=(0,), how="rank-0 was killed by SIGKILL")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    training = Training(
        seed=1, learning_rate=0.1, momentum=0.9, weight_decay=0.0, steps_per_epoch=None,
        test_samples=None, warmup_steps=0, keep_during_run=2,
    )  # fmt: skip
    return Plan(
        cell=cell(faults=LISTED, ranks=2),
        training=training,
        dataset_folder=tmp_path,
        run_folder=tmp_path,
        checkpoint_folder=tmp_path / "checkpoints",
        failures=FAILURES,
    )


def journal(folder: Path, *events: Event, rank: int = 0) -> None:
    recorder = Recorder(strikes_path(folder, rank))
    for event in events:
        recorder.write(event)
    recorder.close()


def strike(failure: int, kind: str = "kill") -> Strike:
    return Strike(failure=failure, kind=kind, attempt=1, pids=[1], monotonic_ns=1, unix_ns=failure)


def struck(failure: int) -> Struck:
    return Struck(failure=failure, monotonic_ns=2, unix_ns=2)


def rested(ahead: tuple[int, ...] = (), missed: tuple[int, ...] = ()) -> Rested:
    return Rested(ahead=list(ahead), missed=list(missed), monotonic_ns=3)


def test_a_loss_after_a_strike_is_answered_by_another_attempt(plan: Plan) -> None:
    journal(plan.run_folder, strike(0))
    assert Restart().after(LOSS, plan) == Relaunch()


def test_a_loss_that_no_strike_explains_ends_the_run(plan: Plan) -> None:
    assert Restart().after(LOSS, plan) == GiveUp(LOSS.how)
    journal(plan.run_folder, strike(0))
    assert Restart().after(LOSS, dataclasses.replace(plan, strikes=1)) == GiveUp(LOSS.how)


def test_a_slow_rank_explains_no_loss(plan: Plan) -> None:
    journal(plan.run_folder, strike(1, "slow"))
    assert Restart().after(LOSS, plan) == GiveUp(LOSS.how)


def test_without_any_version_the_next_attempt_begins_anew(plan: Plan) -> None:
    journal(plan.run_folder, strike(0))
    later = dataclasses.replace(plan, resume_from=plan.checkpoint_folder / "gone")
    following = Restart().next_attempt(later, None)
    assert (following.attempt, following.resume_from, following.strikes) == (2, None, 1)


def test_only_a_struck_run_asks_its_ranks_for_answers(plan: Plan) -> None:
    patient = Variant("restart", (("patience_s", 30.0),))
    own = dataclasses.replace(plan, cell=dataclasses.replace(plan.cell, recovery=patient))
    assert (Restart().patience_s(plan), Restart().patience_s(own)) == (10.0, 30.0)
    whole = dataclasses.replace(plan, cell=plan.cell.reference)
    assert Restart().patience_s(whole) is None


def test_failures_that_struck_or_are_still_ahead_are_as_planned(plan: Plan) -> None:
    journal(plan.run_folder, strike(0), struck(0), rested(ahead=(1,)))
    check_struck(plan, [0, 0], [0])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((strike(0), struck(0), rested(missed=(1,))), r"did not strike: .*'second': 60\.0"),
        ((strike(0), rested(ahead=(1,))), r"did not strike: .*'step': 4"),
        ((strike(0), struck(0)), "the striker was gone before training was over"),
        ((rested(ahead=(1,)),), r"failures \[0\] did not strike: their strikers left no journal"),
        ((), r"failures \[0, 1\] did not strike"),
    ],
    ids=["never came", "did not end", "no striker at the end", "not its own", "no journal"],
)
def test_a_failure_that_did_not_strike_as_planned_fails_the_run(
    plan: Plan, events: tuple[Event, ...], words: str
) -> None:
    if events:
        journal(plan.run_folder, *events)
    with pytest.raises(LaunchError, match=words):
        check_struck(plan, [0, 0], [0])


def test_the_plan_of_a_struck_run_survives_the_way_through_its_file(plan: Plan) -> None:
    listed = dataclasses.replace(plan, listed=FAILURES, strikes=2)
    assert Plan.read(listed.write()) == listed
