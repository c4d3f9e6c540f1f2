"""Failures strike for real: each kind, at each moment, once in a run, and the journal tells of it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import pytest

from ckptbench.common.clock import day_ns
from ckptbench.common.errors import CkptbenchError, LaunchError
from ckptbench.common.processes import living_with
from ckptbench.failures import fault_injector
from ckptbench.failures.fault_injector import READY, FaultInjector, Orders, Progress
from ckptbench.failures.injector_client import InjectorClient
from ckptbench.failures.recovery.contract import Loss, Verdict
from ckptbench.launch.limits import Limits
from ckptbench.launch.starters import Process
from ckptbench.launch.watch import run_processes
from ckptbench.run.control.ranks import RankAssignment
from ckptbench.run.control.server import ControlServer
from ckptbench.run.control.variables import CONTROL, RANK, TOKEN
from ckptbench.run.events import Begun, Strike, Struck, Unfired
from ckptbench.run.failure import Failure
from ckptbench.run.layout import strikes_path
from ckptbench.run.recorder import Recorder
from ckptbench.run.strikes import recorded_strikes
from ckptbench.run.trace import whole_events

VICTIM = Path(__file__).with_name("victim.py")
SOURCE = Path(__file__).resolve().parents[2] / "src"
FOR_EVER = 10**6
BOUND_S = 300.0


def start(folder: Path, *failures: Failure, attempt: int = 1, steps: int = FOR_EVER) -> int:
    """The victim's exit status: negative for a signal."""
    orders = [[each.to_json() for each in failures], str(folder), attempt, steps]
    token = secrets.token_hex(8)
    command = [sys.executable, str(VICTIM), json.dumps(orders)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), TOKEN: token, RANK: "0"}
    status = subprocess.run(command, env=environment, timeout=BOUND_S, check=False).returncode
    assert not living_with(TOKEN, token)
    return status


def journal(folder: Path) -> list[Any]:
    return list(whole_events(strikes_path(folder, 0)))


def steps_done(folder: Path) -> int:
    return 1 + max(map(int, (folder / "steps").read_text().split()))


@pytest.mark.parametrize(
    "failure",
    [
        Failure(step=7, rank=0),
        Failure(step=5, moment="save", rank=0),
        Failure(step=10, moment="save", stage="written", rank=0),
        Failure(second=0.05, rank=0),
        Failure(second=0.0, delay_s=0.05, node=0),
    ],
    ids=["at a step", "in a save", "at a stage", "at a second", "a node"],
)
def test_a_kill_ends_its_victim_and_the_journal_says_when(tmp_path: Path, failure: Failure) -> None:
    (tmp_path / "near").mkdir()
    assert start(tmp_path, failure) == -signal.SIGKILL
    begun, strike = (event for event in journal(tmp_path) if isinstance(event, Begun | Strike))
    assert (strike.failure, strike.kind, strike.attempt) == (0, "kill", 1)
    assert strike.unix_ns - begun.unix_ns >= ((failure.second or 0) + failure.delay_s) * 1e9
    if failure.step is not None:
        assert steps_done(tmp_path) == failure.step, "the victim stands still until it is killed"
    deadline = time.monotonic() + BOUND_S
    while failure.node is not None and (tmp_path / "near").exists():
        assert time.monotonic() < deadline, "what lies on the node is lost with it"
        time.sleep(0.01)


def test_a_strike_is_on_stable_storage_before_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    done: list[Any] = []
    monkeypatch.setattr(Recorder, "sync", lambda _: done.append([*whole_events(path)][-1]))
    monkeypatch.setattr(fault_injector, "_send", lambda pids, number: done.append(number))
    moments = iter([Progress("step", 3, 1)])

    def listen(_: float | None) -> Progress:
        if (told := next(moments, None)) is None:
            raise EOFError
        return told

    orders = Orders(
        pid=FOR_EVER, nodes=("here",), attempt=1, journal=path,
        failures={0: Failure(step=3, rank=0, kind="hang", lasts_s=0.0)}, token="", near=(),
    )  # fmt: skip
    FaultInjector(orders, listen).run()
    strike, *signals = done
    assert (strike.kind, signals) == ("hang", [signal.SIGSTOP, signal.SIGCONT])


def test_a_victim_that_hangs_goes_on_afterwards(tmp_path: Path) -> None:
    assert start(tmp_path, Failure(step=3, rank=0, kind="hang", lasts_s=0.3), steps=50) == 0
    strike, struck = (event for event in journal(tmp_path) if isinstance(event, Strike | Struck))
    assert struck.monotonic_ns - strike.monotonic_ns >= 0.3e9
    assert steps_done(tmp_path) == 50


def test_a_failure_strikes_once_and_seconds_go_on_while_nobody_runs(tmp_path: Path) -> None:
    failures = [Failure(step=4, rank=0), Failure(second=3.0, rank=0)]
    assert start(tmp_path, *failures) == -signal.SIGKILL
    assert start(tmp_path, *failures, attempt=2) == -signal.SIGKILL
    assert start(tmp_path, *failures, attempt=3, steps=20) == 0
    strikes = recorded_strikes(tmp_path)
    assert [(strike.failure, strike.attempt) for strike in strikes] == [(0, 1), (1, 2)]
    begun = [event for event in journal(tmp_path) if isinstance(event, Begun)]
    assert len(begun) == 1
    assert strikes[1].unix_ns - begun[0].unix_ns >= 3e9


def test_seconds_count_from_the_first_step_of_the_run(tmp_path: Path) -> None:
    """It was an hour ago, in an earlier attempt."""
    hour_ago = Begun(monotonic_ns=1, unix_ns=day_ns() - 3600 * 10**9)
    Recorder(strikes_path(tmp_path, 0)).write(hour_ago)
    failure = Failure(second=3000.0, rank=0)
    assert start(tmp_path, failure, attempt=2, steps=500) == -signal.SIGKILL


def test_a_recovery_that_fails_is_struck_when_it_begins(tmp_path: Path) -> None:
    failures = [Failure(step=4, rank=0), Failure(moment="recovery", rank=0)]
    assert start(tmp_path, *failures) == -signal.SIGKILL
    assert start(tmp_path, *failures, attempt=2) == -signal.SIGKILL
    assert start(tmp_path, *failures, attempt=3, steps=20) == 0
    assert [each.attempt for each in recorded_strikes(tmp_path)] == [1, 2]


def test_what_did_not_strike_is_told_at_the_end(tmp_path: Path) -> None:
    failures = [Failure(step=999, rank=0), Failure(second=3600.0, rank=0)]
    assert start(tmp_path, *failures, steps=20) == 0
    (unfired,) = (event for event in journal(tmp_path) if isinstance(event, Unfired))
    assert (unfired.ahead, unfired.missed) == ([1], [0])


@contextmanager
def injector(program: str) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """One that does what `program` says. `connection` leads to its rank."""
    connection, other_end = Pipe()
    start = "import sys; from multiprocessing.connection import Connection; connection = Connection(int(sys.argv[1]));"
    with subprocess.Popen(
        [sys.executable, "-c", f"{start} {program}", str(other_end.fileno())],
        pass_fds=[other_end.fileno()],
    ) as process:
        other_end.close()
        yield process, connection


HEARS_ONCE = "connection.send('ready'); connection.recv(); sys.exit(7)"


def test_an_injector_that_is_gone_before_the_first_step_is_an_error() -> None:
    with (
        injector("sys.exit(7)") as gone,
        pytest.raises(CkptbenchError, match="the injector of this rank ended with exit status 7"),
    ):
        InjectorClient(*gone).report_step(0)


def test_an_injector_that_ends_later_is_an_error_of_the_next_step_not_of_a_recovery() -> None:
    """A rank that recovers has an error of its own to tell."""
    with injector(HEARS_ONCE) as (process, connection):
        client = InjectorClient(process, connection)
        client.report_step(0)
        process.wait()
        client.recovering()
        with pytest.raises(CkptbenchError, match="ended with exit status 7; see above"):
            client.report_step(1)


@pytest.mark.parametrize(
    ("failure", "report"),
    [
        (Failure(step=0, rank=0), lambda target: target.report_step(0)),
        (Failure(step=5, moment="save", rank=0), lambda target: target.report_save(5)),
        (
            Failure(step=5, moment="save", stage="written", rank=0),
            lambda target: (
                target.report_save(5),
                target.at_stage("begun"),
                target.at_stage("written"),
            ),
        ),
    ],
    ids=["at a step", "in a save", "at a stage"],
)
def test_a_rank_stands_still_at_the_moment_at_which_it_is_killed(
    failure: Failure, report: Callable[[InjectorClient], object]
) -> None:
    """This injector ends without killing it."""
    with injector(HEARS_ONCE) as (process, connection):
        client = InjectorClient(process, connection, [failure])
        with pytest.raises(CkptbenchError, match="ended with exit status 7; see above"):
            report(client)


def test_an_injector_ends_with_its_rank_though_a_process_that_this_has_forked_holds_the_line(
    tmp_path: Path,
) -> None:
    """Here this test holds it."""
    connection, other_end = Pipe()
    with subprocess.Popen(["sleep", "600"]) as rank:
        orders = Orders(
            pid=rank.pid, nodes=("here",), attempt=1, journal=strikes_path(tmp_path, 0), failures={0: Failure(step=9, rank=0)},
            token="-", near=(),
        )  # fmt: skip
        command = [sys.executable, "-m", "ckptbench.failures.fault_injector", str(rank.pid)]
        process = subprocess.Popen(
            [*command, str(other_end.fileno())], pass_fds=[other_end.fileno()]
        )
        connection.send(orders)
        assert connection.recv() == READY
        rank.kill()
    assert process.wait(BOUND_S) == 0
    assert journal(tmp_path) == []


def test_a_run_without_failures_starts_no_injector(tmp_path: Path) -> None:
    assert start(tmp_path, steps=3) == 0
    assert journal(tmp_path) == []


HANGS = """
import os, signal, sys, time
from ckptbench.run.control.link import Link
link = Link.open(os.environ["CKPTBENCH_CONTROL"], os.environ["CKPTBENCH_TOKEN"], rank=0, node="here")
link.rendezvous(rank=0, node="here", device="cpu")
if sys.argv[1] == "hangs":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(2.5)
link.close()
"""


@pytest.mark.parametrize("does", ["hangs", "computes"])
def test_a_rank_that_hangs_is_lost_and_one_that_computes_is_not(tmp_path: Path, does: str) -> None:
    """Its second thread answers while the first one does something else."""
    losses: list[Loss] = []

    def after(loss: Loss) -> Verdict:
        losses.append(loss)
        return Verdict.GIVE_UP

    control = ControlServer([RankAssignment(rank=0, node="here", local_rank=0)], host="127.0.0.1")
    log = tmp_path / "rank-0.log"
    rank = Process([sys.executable, "-c", HANGS, does], {RANK: "0"}, [log])
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        CONTROL: control.address,
        TOKEN: control.token,
    }
    # A computing rank that a busy machine keeps from answering for so long would be no surprise after 1 s.
    patience_s = 1.5 if does == "hangs" else 120.0
    limits = Limits(patience_s=patience_s)
    if does == "computes":
        run_processes([rank], environment, limits, control, after=after)
        assert losses == []
        return
    with pytest.raises(LaunchError, match=r"rank-0 did not answer for 1\.5 s"):
        run_processes([rank], environment, limits, control, after=after)
    assert [loss.ranks for loss in losses] == [(0,)]


STARTS_ONE_THAT_HANGS = """
import os, signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1], "hangs"], env={**os.environ, "CKPTBENCH_RANK": "0"})
signal.sigwait({signal.SIGTERM})
print("rank ended by", -rank.wait(), flush=True)
"""


def test_a_rank_that_hangs_is_ended_before_what_has_started_it(tmp_path: Path) -> None:
    """`horovodrun` would first end the injector, which could not write that the hang is over."""
    control = ControlServer([RankAssignment(rank=0, node="here", local_rank=0)], host="127.0.0.1")
    starter = Process(
        [sys.executable, "-c", STARTS_ONE_THAT_HANGS, HANGS], {}, [tmp_path / "starter.log"]
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        CONTROL: control.address,
        TOKEN: control.token,
    }
    assert run_processes(
        [starter], environment, Limits(patience_s=1.5), control, after=lambda _: Verdict.RELAUNCH
    )
    assert "rank ended by 9" in (tmp_path / "starter.log").read_text()
