"""The launcher of a struck run: it restarts after failures that were planned, and says which did not strike."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from run_folders import cell

from ckptbench.common.errors import LaunchError
from ckptbench.failures.recovery.contract import Loss, Verdict, next_attempt
from ckptbench.failures.recovery.restart import Restart
from ckptbench.launch import series
from ckptbench.launch.allocation import read_allocation
from ckptbench.launch.limits import Limits
from ckptbench.launch.series import AttemptSeries
from ckptbench.launch.shard_assembler import ShardAssembler
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.training import Training
from ckptbench.run.events import Event, Strike, Struck, Unfired
from ckptbench.run.failure import Failure
from ckptbench.run.layout import strikes_path
from ckptbench.run.plan import Plan
from ckptbench.run.recorder import Recorder
from ckptbench.run.strikes import await_lost_nodes, check_struck

LISTED = PluginSpec("listed", (("name", "two"),))
FAILURES = (Failure(step=4, rank=0), Failure(second=60.0, rank=0, kind="hang"))
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
        run_id="0" * 32,
        dataset_sha256="1" * 64,
        lock_sha256="2" * 64,
        failures=FAILURES,
    )


def journal(folder: Path, *events: Event, rank: int = 0) -> None:
    recorder = Recorder(strikes_path(folder, rank))
    for event in events:
        recorder.write(event)
    recorder.close()


def strike(failure: int, kind: str = "kill") -> Strike:
    return Strike(failure=failure, kind=kind, attempt=1, monotonic_ns=1, unix_ns=failure)


def struck(failure: int) -> Struck:
    return Struck(failure=failure, monotonic_ns=2, unix_ns=2)


def unfired(ahead: tuple[int, ...] = (), missed: tuple[int, ...] = ()) -> Unfired:
    return Unfired(ahead=list(ahead), missed=list(missed), monotonic_ns=3)


def test_a_loss_after_a_strike_is_answered_by_another_attempt(plan: Plan) -> None:
    journal(plan.run_folder, strike(0))
    assert Restart().after(LOSS, plan) == Verdict.RELAUNCH


def test_a_loss_that_no_strike_explains_ends_the_run(plan: Plan) -> None:
    assert Restart().after(LOSS, plan) == Verdict.GIVE_UP
    journal(plan.run_folder, strike(0))
    assert Restart().after(LOSS, dataclasses.replace(plan, strikes=1)) == Verdict.GIVE_UP


def test_without_any_version_the_next_attempt_begins_anew(plan: Plan) -> None:
    journal(plan.run_folder, strike(0))
    later = dataclasses.replace(plan, resume_from=plan.checkpoint_folder / "gone")
    following = next_attempt(later, None, attempt=later.attempt + 1)
    assert (following.attempt, following.resume_from, following.strikes) == (2, None, 1)


def test_a_run_of_the_resume_proof_never_begins_anew(plan: Plan) -> None:
    killed = dataclasses.replace(plan.cell, faults=PluginSpec("killed_between"))
    with pytest.raises(LaunchError, match="no sound version to restart from"):
        next_attempt(dataclasses.replace(plan, cell=killed), None, attempt=2)


def test_only_a_struck_run_asks_its_ranks_for_answers(plan: Plan) -> None:
    patient = PluginSpec("restart", (("patience_s", 30.0),))
    own = dataclasses.replace(plan, cell=dataclasses.replace(plan.cell, recovery=patient))
    assert (Restart().patience_s(plan), Restart().patience_s(own)) == (10.0, 30.0)
    whole = dataclasses.replace(plan, cell=plan.cell.reference)
    assert Restart().patience_s(whole) is None


def test_failures_that_struck_or_are_still_ahead_are_as_planned(plan: Plan) -> None:
    journal(plan.run_folder, strike(0), struck(0), unfired(ahead=(1,)))
    check_struck(plan, [0, 0], [0])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (
            (strike(0), struck(0), unfired(missed=(1,))),
            r"second: 60\.0.*} did not occur: its step, save or recovery never came",
        ),
        ((strike(0), unfired(ahead=(1,))), r"step: 4.*} did not occur"),
        ((strike(0), struck(0)), "the injector was gone before training was over"),
        (
            (unfired(ahead=(1,)),),
            r"failures \[0\] did not occur: their injectors recorded nothing",
        ),
        ((), "the injector was gone before training was over"),
    ],
    ids=["never came", "did not end", "no injector at the end", "not its own", "no journal"],
)
def test_a_failure_that_did_not_strike_as_planned_fails_the_run(
    plan: Plan, events: tuple[Event, ...], words: str
) -> None:
    if events:
        journal(plan.run_folder, *events)
    with pytest.raises(LaunchError, match=words):
        check_struck(plan, [0, 0], [0])


SECOND = 10**9


def at(failure: int, second: int, kind: str, lasts_s: int = 2) -> tuple[Strike, Struck]:
    own = dataclasses.replace(strike(failure, kind), monotonic_ns=second * SECOND, unix_ns=second * SECOND)  # fmt: skip
    over = (second + lasts_s) * SECOND
    return own, dataclasses.replace(struck(failure), monotonic_ns=over, unix_ns=over)


def test_a_hang_that_has_passed_explains_no_loss(plan: Plan) -> None:
    journal(plan.run_folder, *at(0, 20, "hang"))
    assert Restart().after(LOSS, plan) == Verdict.GIVE_UP
    assert Restart().after(dataclasses.replace(LOSS, hangs=True), plan) == Verdict.RELAUNCH


def test_a_peer_that_gives_a_hanging_rank_up_first_is_explained_by_the_hang(plan: Plan) -> None:
    journal(plan.run_folder, strike(0, "hang"))
    assert Restart().after(LOSS, plan) == Verdict.RELAUNCH


def test_the_launcher_waits_until_what_a_lost_node_held_is_removed(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_node = dataclasses.replace(plan, failures=(Failure(step=4, node=0),))
    journal(plan.run_folder, strike(0))
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        journal(plan.run_folder, struck(0))

    monkeypatch.setattr("ckptbench.run.strikes.time.sleep", sleep)
    await_lost_nodes(of_node)
    assert len(looks) == 1
    await_lost_nodes(of_node)
    await_lost_nodes(plan)
    assert len(looks) == 1


def test_the_plan_of_a_struck_run_survives_the_way_through_its_file(plan: Plan) -> None:
    listed = dataclasses.replace(plan, listed=FAILURES, strikes=2)
    assert Plan.read(listed.write()) == listed


def test_the_next_attempt_is_chosen_when_a_lost_node_holds_nothing_any_more(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_node = dataclasses.replace(plan, failures=(Failure(step=4, node=0),))
    journal(plan.run_folder, strike(0))
    done = []

    def sleep(seconds: float) -> None:
        done.append("waited")
        journal(plan.run_folder, struck(0))

    monkeypatch.setattr("ckptbench.run.strikes.time.sleep", sleep)
    monkeypatch.setattr(series, "newest_version", lambda *_: done.append("looked"))
    assembler = ShardAssembler(python=Path("python"), logs=tmp_path, limits=Limits())
    AttemptSeries(of_node, read_allocation({}), assembler, {}).choose()
    assert done == ["waited", "looked"]
