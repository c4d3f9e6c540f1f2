"""A wall clock that is set an hour back or forth while a run goes on changes no duration and no order of events."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Pipe
from pathlib import Path

import pytest
from in_process import interrupt
from numpy_framework import ALONE, NumpyFramework, Unasked

from ckptbench.analysis.collect.runs import collect
from ckptbench.common import clock as clocks
from ckptbench.common.clock import Instant, clock, day_ns, follow
from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_json, write_json
from ckptbench.failures import fault_injector
from ckptbench.failures.fault_injector import OVER, READY, FaultInjector, Orders, Told
from ckptbench.failures.recovery.contract import Loss
from ckptbench.launch.allocation import read_allocation
from ckptbench.launch.limits import Limits
from ckptbench.launch.run import Execution, run_cell
from ckptbench.launch.series import AttemptSeries
from ckptbench.launch.shard_assembler import ShardAssembler
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.runs.events import AllEnded, Begun, Lost, Strike, Struck
from ckptbench.runs.failure import Failure
from ckptbench.runs.layout import LAUNCHER_TRACE, strikes_path, trace_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.seal import seal
from ckptbench.runs.trace import whole_events
from ckptbench.training.rank import run_rank
from ckptbench.world import variables

HOUR_S = 3600
MakePlan = Callable[..., Plan]
SetClock = Callable[[float], None]


@pytest.fixture(autouse=True)
def same_day_afterwards() -> Iterator[None]:
    """What a test has this process follow is forgotten."""
    before = clocks._Day.offset_ns
    yield
    clocks._Day.offset_ns = before


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Sets the wall clock of this process by so many seconds."""
    real, real_ns, by = time.time, time.time_ns, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + by[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + round(by[0] * 1e9))

    def set_by(seconds: float) -> None:
        by[0] += seconds

    return set_by


@pytest.fixture
def starts_anew(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The host is started anew: another boot, and a process that reads its wall clock."""

    def start() -> None:
        monkeypatch.setattr(clocks, "boot_id", lambda: "another-boot")
        clocks._Day.offset_ns = time.time_ns() - clock()

    return start


@pytest.fixture
def launched(execution: Execution, monkeypatch: pytest.MonkeyPatch) -> Execution:
    """The rank runs in this process, and is told when it was launched."""

    def launch(attempts: AttemptSeries) -> None:
        monkeypatch.setenv(variables.LAUNCHED, str(Instant.now()))
        run_rank(attempts.plan, ALONE, Unasked(), started_ns=clock())

    monkeypatch.setattr(AttemptSeries, "launch", launch)
    return execution


@pytest.fixture
def plan(make_plan: MakePlan, tmp_path: Path) -> Plan:
    """Of a run whose folder has its name."""
    return make_plan("e1", name=make_plan("e1").cell.id)


def set_after(
    monkeypatch: pytest.MonkeyPatch, steps: int, set_clock: SetClock, seconds: float
) -> None:
    """Set the clock when training has made so many steps."""
    step, done = NumpyFramework.step, [0]

    def setting(self: NumpyFramework, *batch: object) -> float:
        done[0] += 1
        if done[0] == steps:
            set_clock(seconds)
        return step(self, *batch)  # type: ignore[arg-type]

    monkeypatch.setattr(NumpyFramework, "step", setting)


def test_an_instant_is_read_as_it_was_written() -> None:
    now = Instant.now()
    assert Instant.read(str(now)) == now
    with pytest.raises(ValueError, match="unpack"):
        Instant.read("boot 1 2")


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
def test_the_time_of_day_does_not_follow_a_wall_clock_that_is_set(
    set_clock: SetClock, seconds: float
) -> None:
    before = Instant.now()
    set_clock(seconds)
    after = Instant.now()
    assert 0 <= before.seconds_to(after) < HOUR_S / 2  # type: ignore[operator]
    assert after.day_ns - before.day_ns == after.monotonic_ns - before.monotonic_ns
    assert abs(after.wall_ns - before.wall_ns - seconds * 1e9) < HOUR_S / 2 * 1e9


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
def test_a_later_process_of_the_host_takes_over_the_time_of_day(
    set_clock: SetClock, seconds: float
) -> None:
    first = Instant.now()
    set_clock(seconds)
    clocks._Day.offset_ns = time.time_ns() - clock()  # that of a new process
    follow(first)
    assert day_ns(first.monotonic_ns) == first.day_ns


def test_a_process_on_another_host_takes_its_wall_clock_for_set_as_well(
    set_clock: SetClock,
) -> None:
    before = day_ns()
    set_clock(-HOUR_S)
    told = dataclasses.replace(Instant.now(), boot="that-of-another-host")
    clocks._Day.offset_ns = time.time_ns() - clock()
    follow(told)
    assert 0 <= day_ns() - before < HOUR_S / 2 * 1e9


def test_between_two_boots_a_time_that_cannot_be_is_unknown() -> None:
    early = Instant(boot="one", monotonic_ns=10**12, wall_ns=10**18, day_ns=10**18)
    late = Instant(boot="two", monotonic_ns=5, wall_ns=10**18, day_ns=10**18 + 2 * 10**9)
    assert early.seconds_to(late) == 2.0
    assert late.seconds_to(early) is None


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
def test_a_run_during_which_the_clock_is_set_lasts_as_long_as_it_does(
    plan: Plan,
    launched: Execution,
    set_clock: SetClock,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
) -> None:
    set_after(monkeypatch, 5, set_clock, seconds)
    run_cell(plan, launched)
    row = collect([plan.run_folder])["runs"].iloc[0]
    assert row["timing_valid"]
    assert 0 < row["wall_s"] <= row["duration_s"] < HOUR_S / 2
    assert 0 <= (row["ended"] - row["started"]).total_seconds() < HOUR_S / 2


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
def test_a_run_that_goes_on_after_the_clock_was_set_lasts_from_its_first_attempt(
    plan: Plan,
    launched: Execution,
    set_clock: SetClock,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
) -> None:
    interrupt(plan, launched, monkeypatch, steps=6)
    first = read_json(plan.run_folder / "manifest.json")
    set_clock(seconds)
    clocks._Day.offset_ns = time.time_ns() - clock()  # that of the new launcher
    run_cell(plan, dataclasses.replace(launched, resume=True))
    last = read_json(plan.run_folder / "manifest.json")
    assert (last["attempts"], last["started"], last["clock"]) == (2, first["started"], first["clock"])  # fmt: skip
    assert first["duration_s"] < last["duration_s"] < HOUR_S / 2
    row = collect([plan.run_folder])["runs"].iloc[0]
    assert 0 < row["wall_s"] <= row["duration_s"]
    assert row["started"] <= row["ended"]


def test_what_two_boots_cannot_tell_is_left_out(
    plan: Plan,
    launched: Execution,
    set_clock: SetClock,
    starts_anew: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupt(plan, launched, monkeypatch, steps=6)
    set_clock(-HOUR_S)
    starts_anew()
    run_cell(plan, dataclasses.replace(launched, resume=True))
    assert read_json(plan.run_folder / "manifest.json")["duration_s"] is None
    row = collect([plan.run_folder])["runs"].iloc[0]
    assert math.isnan(row["duration_s"])
    assert math.isnan(row["wall_s"])
    assert not row["timing_valid"]


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
def test_what_the_launcher_saw_stays_in_its_order(
    struck_plan: Plan, set_clock: SetClock, seconds: float
) -> None:
    limits = Limits(timeout_seconds=None)
    assembler = ShardAssembler(python=Path("python"), logs=struck_plan.run_folder, limits=limits)
    seen = AttemptSeries(struck_plan, read_allocation({}), assembler, {})
    seen.after(Loss(ranks=(0,), how="died"))
    set_clock(seconds)
    seen.all_ended()
    told = [
        event
        for event in whole_events(struck_plan.run_folder / LAUNCHER_TRACE)
        if isinstance(event, Lost | AllEnded)
    ]
    times = [event.unix_ns for event in told]
    assert [type(event) for event in told] == [Lost, AllEnded]
    assert times == sorted(times)
    assert times[-1] - times[0] < HOUR_S / 2 * 1e9


def orders(folder: Path, attempt: int, **failure: object) -> Orders:
    return Orders(
        pid=os.getpid(), nodes=("here",), attempt=attempt, journal=strikes_path(folder, 0),
        failures={0: Failure(rank=0, kind="hang", lasts_s=0.01, **failure)}, token="-", near=(), told=Instant.now(),
    )  # type: ignore[arg-type]  # fmt: skip


def strike(own: Orders, *told: Told | Callable[[], Told]) -> None:
    """Strike in this process. What its rank tells comes at once; afterwards nothing for as long as is asked, and at last the end."""
    left = list(told)

    def listen(timeout: float | None) -> Told | None:
        if left:
            one = left.pop(0)
            return one() if callable(one) else one
        if timeout is None:
            raise EOFError
        time.sleep(timeout)
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fault_injector, "_send", lambda *_: None)  # the victim is this process
        FaultInjector(own, listen).run()


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
def test_a_failure_comes_at_its_second_though_the_clock_is_set(
    tmp_path: Path, set_clock: SetClock, seconds: float
) -> None:
    begun_ns = clock()

    def setting() -> Told:
        set_clock(seconds)
        return Told("step", 1, clock())

    strike(orders(tmp_path, 1, second=0.1), Told("step", 0, begun_ns), setting)
    journal = list(whole_events(strikes_path(tmp_path, 0)))
    (begun,) = (event for event in journal if isinstance(event, Begun))
    (came,) = (event for event in journal if isinstance(event, Strike))
    (over,) = (event for event in journal if isinstance(event, Struck))
    assert 0.1e9 <= came.unix_ns - begun.unix_ns < HOUR_S / 2 * 1e9
    assert came.unix_ns - begun.unix_ns == came.monotonic_ns - begun.monotonic_ns
    assert 0 <= over.unix_ns - came.unix_ns < HOUR_S / 2 * 1e9


@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S])
def test_a_failure_of_a_later_attempt_counts_from_the_first_step_though_the_clock_was_set(
    tmp_path: Path, set_clock: SetClock, seconds: float
) -> None:
    told = Instant.now()
    strike(orders(tmp_path, 1, step=99), Told("step", 0, clock()))
    set_clock(seconds)
    clocks._Day.offset_ns = time.time_ns() - clock()  # that of a new process
    follow(told)
    strike(orders(tmp_path, 2, second=0.2), Told("step", 4, clock()))
    journal = list(whole_events(strikes_path(tmp_path, 0)))
    (begun,) = (event for event in journal if isinstance(event, Begun))
    (came,) = (event for event in journal if isinstance(event, Strike))
    assert 0.2e9 <= came.unix_ns - begun.unix_ns < HOUR_S / 2 * 1e9


def test_an_injector_has_the_time_of_day_of_its_rank(tmp_path: Path) -> None:
    """It is a process of its own."""
    clocks._Day.offset_ns += HOUR_S * 10**9
    own = orders(tmp_path, 1, second=3600.0)
    line, other_end = Pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "ckptbench.failures.fault_injector", str(os.getpid()), str(other_end.fileno())],
        pass_fds=[other_end.fileno()],
    ):  # fmt: skip
        line.send(own)
        line.send(Told("step", 0, clock()))
        line.send(OVER)
        assert [line.recv(), line.recv()] == [READY, OVER]
    (begun,) = (e for e in whole_events(strikes_path(tmp_path, 0)) if isinstance(e, Begun))
    assert begun.unix_ns == day_ns(begun.monotonic_ns)


def test_a_struck_run_whose_clocks_contradict_each_other_is_refused(
    plan: Plan, launched: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two boots, with a wall clock that was set back between them: which step undid which is unknown."""
    interrupt(plan, launched, monkeypatch, steps=6)
    run_cell(plan, dataclasses.replace(launched, resume=True))
    path = trace_path(plan.run_folder, 0)
    starts = [json.loads(line) for line in path.read_text().splitlines()]
    last = max(place for place, event in enumerate(starts) if event["event"] == "start")
    starts[last]["unix_ns"] -= HOUR_S * 10**9
    path.write_text("".join(json.dumps(event) + "\n" for event in starts))
    manifest = read_json(plan.run_folder / "manifest.json")
    struck = dataclasses.replace(plan.cell, faults=PluginSpec("exponential"))
    write_json(
        plan.run_folder / "manifest.json",
        manifest | {"cell": struck.to_json(), "cell_id": struck.id},
    )
    seal(plan.run_folder, 1)
    with pytest.raises(RunFolderError, match="a wall clock was set between them"):
        collect([plan.run_folder])
