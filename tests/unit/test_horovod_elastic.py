"""The recovery `horovod_elastic`, with a Horovod that these tests play. tests/study/test_recoveries.py has the real one."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy_framework import ALONE, NumpyFramework, Unasked, linear

from ckptbench.common.clock import boot_id, clock
from ckptbench.common.errors import LaunchError
from ckptbench.common.shared_memory import PYTHON, named_segments
from ckptbench.failures.recovery.contract import Loss, Verdict
from ckptbench.failures.recovery.horovod_elastic import NUMBERED, HorovodElastic, HorovodElasticRank
from ckptbench.frameworks.contract import Sgd, TrainSpec
from ckptbench.frameworks.horovod.ranks import OverHorovod, is_of_horovod
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import RECOVERIES
from ckptbench.runs.events import Event, Membership, Phase, Start, Strike
from ckptbench.runs.failure import Failure
from ckptbench.runs.layout import strikes_path, trace_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.position import Position
from ckptbench.runs.recorder import Recorder
from ckptbench.training.rank import launched_ns

FAILURES = (
    Failure(step=4, rank=1),
    Failure(step=6, rank=1),
    Failure(step=6, rank=0),
    Failure(step=8, rank=2),
)
SGD = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)


# The launcher's half.


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    plan = make_plan("never")
    cell = dataclasses.replace(plan.cell, ranks=3, faults=PluginSpec("listed", (("name", "x"),)))
    plan = dataclasses.replace(plan, cell=cell, listed=FAILURES, failures=FAILURES)
    for rank in range(3):
        comes(plan, rank)
    return plan


def write(plan: Plan, rank: int, *events: Event) -> None:
    recorder = Recorder(trace_path(plan.run_folder, rank))
    for event in events:
        recorder.write(event)
    recorder.close()


def comes(plan: Plan, rank: int, *, meets: bool = True, joins: bool = False) -> None:
    """Another process comes up in the place of this rank."""
    write(plan, rank, Phase(name="launch", start_ns=1, end_ns=2))
    if meets:
        start = Start(
            attempt=plan.attempt, rank=rank, world_size=3, host="here", pid=1, device="cpu",
            monotonic_ns=1, unix_ns=1, versions={},
        )  # fmt: skip
        write(plan, rank, Phase(name="join", start_ns=2, end_ns=3), start)
    if joins:
        write(
            plan, rank, Membership(step=5, ranks=[0, 1, 2], first=[0], samples=[1], monotonic_ns=4)
        )


def struck(plan: Plan, failure: int) -> None:
    recorder = Recorder(strikes_path(plan.run_folder, 0))
    recorder.write(Strike(failure=failure, kind="kill", attempt=1, monotonic_ns=1, unix_ns=failure))
    recorder.close()


def lost(recovery: HorovodElastic, plan: Plan, *ranks: int) -> Verdict:
    """Who comes up again is left for the control line, though it has nothing to go on with yet."""
    left = tuple({0, 1, 2} - {*ranks})
    return recovery.after(Loss(ranks=ranks, how="died", left=left), plan)


def test_a_rank_that_has_come_back_counts_as_there(plan: Plan) -> None:
    """So the run does not start again before all three are gone at the same time."""
    recovery = HorovodElastic()
    for failure in (0, 1):
        struck(plan, failure)
        assert lost(recovery, plan, 1) == Verdict.GO_ON
        comes(plan, 1, joins=True)
    struck(plan, 2)
    assert lost(recovery, plan, 0) == Verdict.GO_ON
    struck(plan, 3)
    assert lost(recovery, plan, 2) == Verdict.GO_ON


def test_all_start_again_where_nobody_has_a_state_any_more(plan: Plan) -> None:
    """The rank that has come in place of rank 1 has not joined the others yet."""
    recovery = HorovodElastic()
    for failure, rank in ((0, 1), (2, 0)):
        struck(plan, failure)
        assert lost(recovery, plan, rank) == Verdict.GO_ON
    comes(plan, 1)
    struck(plan, 3)
    assert lost(recovery, plan, 2) == Verdict.RELAUNCH


def test_all_start_again_where_a_new_rank_is_lost_before_it_has_met_the_others(plan: Plan) -> None:
    """They wait for it in Horovod's `init`, which would end them."""
    recovery = HorovodElastic()
    struck(plan, 0)
    assert lost(recovery, plan, 1) == Verdict.GO_ON
    comes(plan, 1, meets=False)
    struck(plan, 1)
    assert lost(recovery, plan, 1) == Verdict.RELAUNCH


def test_ranks_that_horovod_ends_after_a_loss_start_again(plan: Plan) -> None:
    recovery = HorovodElastic()
    struck(plan, 0)
    assert lost(recovery, plan, 1) == Verdict.GO_ON
    assert lost(recovery, plan, 2) == Verdict.RELAUNCH
    assert lost(recovery, plan, 2) == Verdict.GIVE_UP, "now nobody was missing"


def test_a_rank_that_dies_by_itself_while_all_are_there_ends_the_run(plan: Plan) -> None:
    recovery = HorovodElastic()
    assert lost(recovery, plan, 2) == Verdict.GIVE_UP
    struck(plan, 0)
    assert lost(recovery, plan, 1) == Verdict.GO_ON
    comes(plan, 1, joins=True)
    assert lost(recovery, plan, 2) == Verdict.GIVE_UP
    assert lost(recovery, plan) == Verdict.GIVE_UP


UPTIME_STEP_S = 0.01


def uptime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_every_rank_knows_its_number_by_its_host_which_is_this_one(plan: Plan) -> None:
    program = "import os; print(os.environ['CKPTBENCH_RANK'], os.environ['CKPTBENCH_STARTED'])"
    command = HorovodElastic().command([sys.executable, "-c", program], plan)
    assert command[command.index("-np") + 1] == "3"
    script = command[command.index("--host-discovery-script") + 1]
    listed = subprocess.run(script, shell=True, capture_output=True, text=True, check=True)
    hosts = [line.partition(":")[0] for line in listed.stdout.splitlines()]
    assert [line.partition(":")[2] for line in listed.stdout.splitlines()] == ["1"] * 3
    rank_command = command[command.index("sh") :]
    assert rank_command[2] == NUMBERED
    for rank, host in enumerate(hosts):
        environment, before = {**os.environ, "HOROVOD_HOSTNAME": host}, uptime_s()
        said = subprocess.run(
            rank_command, env=environment, capture_output=True, text=True, check=True
        )
        number, started = said.stdout.split()
        assert int(number) == rank
        assert before - UPTIME_STEP_S <= float(started) <= uptime_s()
        assert socket.gethostbyname(host) == "127.0.0.1"


def test_only_a_new_rank_was_started_when_horovodrun_started_it() -> None:
    """The others were when the launcher started `horovodrun`."""
    line = Line()
    told = {"CKPTBENCH_LAUNCHED": f"{boot_id()} 5 6 7", "CKPTBENCH_STARTED": "7.00"}
    line.launched = None
    assert launched_ns(line, told, clock()) == 5
    line.comes_again = True
    started = {**told, "CKPTBENCH_STARTED": f"{uptime_s() - 1:.2f}"}
    started_ns = clock()  # a pause between the two lines makes the difference larger
    ago_s = (started_ns - launched_ns(line, started, started_ns)) / 1e9
    assert 0.9 < ago_s < 60


# The rank's half.


class LostPeerError(Exception):
    """What this Horovod raises."""


class HostsUpdatedInterrupt(Exception):  # noqa: N818 (Horovod's name)
    """New ranks can join."""


class PlayedHorovod:
    """Horovod as one rank sees it. Each `init` begins with the next of `worlds`: a rank and its step, by Horovod's rank."""

    def __init__(self) -> None:
        self.worlds: list[list[tuple[int, int]] | Exception] = []
        self.calls: list[str] = []
        self.newcomers = False

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def init(self) -> None:
        self.calls.append("init")

    def allgather_object(self, own: tuple[int, int], name: str) -> list[tuple[int, int]]:
        world = self.worlds.pop(0)
        if isinstance(world, Exception):
            raise world
        self.first = world[0]
        assert own in world
        return world


class PlayedState:
    """Horovod's elastic state. It sends the weights that rank 0 has: its step, in every one of them."""

    def __init__(self, framework: PlayedFramework, step: int) -> None:
        self.step = step
        self._framework = framework
        self.save()

    def save(self) -> None:
        self._kept = (
            self.step,
            {name: array.copy() for name, array in self._framework.weights.items()},
        )

    def commit(self) -> None:
        self.save()
        if self._framework.horovod.newcomers:
            raise HostsUpdatedInterrupt

    def restore(self) -> None:
        self.step, kept = self._kept
        self._framework.weights = {name: array.copy() for name, array in kept.items()}

    def sync(self) -> None:
        own = ALONE.rank, self.step
        if self._framework.horovod.first != own:
            self.step = self._framework.horovod.first[1]
            fill(self._framework, self.step)

    def on_reset(self) -> None:
        self._framework.horovod.calls.append("on_reset")


class PlayedFramework(OverHorovod, NumpyFramework):
    horovod: PlayedHorovod  # type: ignore[assignment, misc]

    def elastic_state(self, *, step: int) -> Any:
        return PlayedState(self, step)

    @classmethod
    def tells_of_a_loss(cls, error: BaseException) -> bool:
        return isinstance(error, LostPeerError)


def fill(framework: PlayedFramework, number: float) -> None:
    for array in framework.weights.values():
        array.fill(number)


def at(step: int) -> Position:
    return Position(step=step, epoch=0, step_in_epoch=step)


@pytest.fixture
def framework() -> PlayedFramework:
    framework = PlayedFramework()
    framework.horovod = PlayedHorovod()
    network = linear((2, 2, 1), 3)
    framework.build(TrainSpec(network, dict(network.initial_weights(1)), SGD))
    fill(framework, 0)
    return framework


@pytest.fixture
def make_rank(
    framework: PlayedFramework, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., HorovodElasticRank]:
    elastic = ModuleType("horovod.common.elastic")
    nothing = SimpleNamespace(init=lambda: None, register_listener=lambda state: None)
    elastic.notification_manager = nothing  # type: ignore[attr-defined]
    exceptions = ModuleType("horovod.common.exceptions")
    exceptions.HostsUpdatedInterrupt = HostsUpdatedInterrupt  # type: ignore[attr-defined]
    for module in (ModuleType("horovod"), ModuleType("horovod.common"), elastic, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "")

    def make(**options: Any) -> HorovodElasticRank:
        defaults = PluginSpec("horovod_elastic").chosen(RECOVERIES["horovod_elastic"].options)
        rank = HorovodElasticRank(ALONE, cast(Any, Line()), {**defaults, **options})
        rank.adopt(framework)
        return rank

    return make


class Line(Unasked):
    comes_again = False


def train(rank: HorovodElasticRank, framework: PlayedFramework, first: int, last: int) -> None:
    """Train from after step `first` to after step `last`: the weights are the number of steps."""
    for step in range(first, last):
        assert rank.admit(at(step)) is None
        fill(framework, step + 1)


def weight(framework: PlayedFramework) -> float:
    (value,) = {float(each) for array in framework.weights.values() for each in np.unique(array)}
    return value


def test_survivors_go_back_to_the_last_commit(
    make_rank: Callable[..., HorovodElasticRank], framework: PlayedFramework
) -> None:
    rank = make_rank(commit_steps=3)
    assert rank.join(at(0)) is None
    train(rank, framework, 0, 8)
    framework.horovod.worlds = [[(0, 6), (2, 6)]]
    regrouped = rank.regroup(LostPeerError(), at(8))
    assert (regrouped.step, regrouped.ranks, regrouped.bytes) == (6, (0, 2), 0)
    assert weight(framework) == 6
    assert framework.horovod.calls == ["shutdown", "init", "on_reset"]
    assert regrouped.noticed_ns <= regrouped.agreed_ns <= regrouped.ready_ns


def test_all_take_over_what_horovods_first_rank_has_committed(
    make_rank: Callable[..., HorovodElasticRank], framework: PlayedFramework
) -> None:
    """It was lost to it after the step, and to this rank before."""
    rank = make_rank(commit_steps=3)
    rank.join(at(0))
    train(rank, framework, 0, 5)
    framework.horovod.worlds = [[(2, 6), (0, 3)]]
    regrouped = rank.regroup(LostPeerError(), at(5))
    assert (regrouped.step, regrouped.ranks) == (6, (0, 2))
    assert regrouped.bytes == sum(tensor.nbytes for tensor in framework.state())
    assert weight(framework) == 6
    framework.horovod.worlds = [[(2, 6), (0, 6)]]
    assert rank.regroup(LostPeerError(), at(6)).step == 6, "it has kept what it took over"


def test_another_loss_meanwhile_begins_it_anew(
    make_rank: Callable[..., HorovodElasticRank], framework: PlayedFramework
) -> None:
    rank = make_rank(commit_steps=3)
    rank.join(at(0))
    train(rank, framework, 0, 4)
    framework.horovod.worlds = [LostPeerError(), [(0, 3)]]
    regrouped = rank.regroup(LostPeerError(), at(4))
    assert (regrouped.step, regrouped.ranks) == (3, (0,))
    assert framework.horovod.calls.count("init") == 2


def test_random_states_are_those_of_the_commit(
    make_rank: Callable[..., HorovodElasticRank], framework: PlayedFramework
) -> None:
    rank = make_rank(commit_steps=1)
    rank.join(at(0))
    train(rank, framework, 0, 2)
    rank.admit(at(2))
    expected = np.random.random()
    framework.horovod.worlds = [[(0, 2)]]
    rank.regroup(LostPeerError(), at(2))
    assert np.random.random() == expected


def test_an_error_of_this_rank_itself_is_raised_again(
    make_rank: Callable[..., HorovodElasticRank],
) -> None:
    rank = make_rank()
    rank.join(at(0))
    with pytest.raises(OSError, match="disk"):
        rank.regroup(OSError("disk"), at(0))
    error = LaunchError("wrapped")
    error.__cause__ = LostPeerError()
    cast(PlayedFramework, rank.framework).horovod.worlds = [[(0, 0)]]
    assert rank.regroup(error, at(0)).step == 0


def test_new_ranks_are_admitted_at_a_commit(
    make_rank: Callable[..., HorovodElasticRank], framework: PlayedFramework
) -> None:
    rank = make_rank(commit_steps=2)
    rank.join(at(0))
    train(rank, framework, 0, 3)
    framework.horovod.newcomers = True
    assert rank.admit(at(3)) is None
    fill(framework, 4)
    framework.horovod.worlds = [[(0, 4), (1, -1)]]
    regrouped = rank.admit(at(4))
    assert regrouped is not None
    assert (regrouped.step, regrouped.ranks, regrouped.bytes) == (4, (0, 1), 0)
    assert rank.admit(at(4)) is None, "that step is committed"


def test_a_new_rank_gets_the_state_of_the_others(
    make_rank: Callable[..., HorovodElasticRank], framework: PlayedFramework
) -> None:
    rank = make_rank()
    rank.link.comes_again = True
    framework.horovod.worlds = [[(1, 25), (0, -1)]]
    regrouped = rank.join(at(0))
    assert regrouped is not None
    assert (regrouped.step, regrouped.ranks, weight(framework)) == (25, (0, 1), 25)
    assert framework.horovod.calls == [], "it has met the others when the framework joined"


def test_new_ranks_alone_do_not_begin_anew_in_silence(
    make_rank: Callable[..., HorovodElasticRank], framework: PlayedFramework
) -> None:
    rank = make_rank()
    rank.link.comes_again = True
    framework.horovod.worlds = [[(0, -1), (1, -1)]]
    with pytest.raises(LaunchError, match="every rank that had a state is lost"):
        rank.join(at(0))


def test_a_loss_at_the_end_is_no_failure(
    make_rank: Callable[..., HorovodElasticRank], framework: PlayedFramework
) -> None:
    rank = make_rank()
    rank.join(at(0))

    def fail(error: Exception) -> Callable[[], None]:
        def close() -> None:
            raise error

        return close

    framework.close = fail(LostPeerError())  # type: ignore[method-assign]
    rank.close()
    framework.close = fail(OSError("own"))  # type: ignore[method-assign]
    with pytest.raises(OSError, match="own"):
        rank.close()


@pytest.mark.parametrize(
    ("text", "is_loss"),
    [
        ("{{node HorovodAllreduce}} Horovod has been shut down.", True),
        # The first rank that notices, in a compiled step.
        (
            'Graph execution error:\n\nDetected at node gradient.9 defined at\n  File "horovod/tensorflow/mpi_ops.py"\n'
            "[horovod-0.28.1/third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [127.0.0.1]:17313: Connection "
            "reset by peer\n\t [[{{node gradient.9}}]] [Op:__inference_step_1001]",
            True,
        ),
        ("Graph execution error: OOM when allocating tensor [[{{node conv2d}}]]", False),
    ],
)
def test_the_text_of_an_error_tells_whether_a_rank_was_lost(text: str, is_loss: bool) -> None:
    assert is_of_horovod(text) == is_loss


KILLED_WITH_SEMAPHORES = """
import multiprocessing, os, signal
lock = multiprocessing.get_context("spawn").Lock()
print(lock._semlock.name, flush=True)
tracker = multiprocessing.resource_tracker._resource_tracker._pid
os.kill(tracker, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_semaphores_of_a_killed_horovodrun_are_removed_and_others_stay() -> None:
    other = multiprocessing.get_context("spawn").Lock()
    kept = f"sem.{other._semlock.name.removeprefix('/')}"  # type: ignore[attr-defined]
    with HorovodElastic().environment():
        command = [sys.executable, "-c", KILLED_WITH_SEMAPHORES]
        name = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        left = f"sem.{name.removeprefix('/')}"
        assert left in {path.name for path in named_segments(PYTHON)}
    after = {path.name for path in named_segments(PYTHON)}
    assert left not in after
    assert kept in after
    assert other.acquire(block=False)
