"""Starting and watching ranks: a run ends well only when all of its processes do, and never hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ckptbench.common.errors import LaunchError
from ckptbench.common.memory_kills import MemoryKills
from ckptbench.failures.recovery.contract import Loss, Verdict
from ckptbench.launch import child_process
from ckptbench.launch import limits as limits_module
from ckptbench.launch.child_process import LogFollower
from ckptbench.launch.limits import Limits, StopRequest
from ckptbench.launch.starters import Process
from ckptbench.launch.watch import run_processes
from ckptbench.run.control.connections import Connection
from ckptbench.run.control.joining import see_one_gpu
from ckptbench.run.control.ranks import RankAssignment, assign_ranks
from ckptbench.run.control.server import ControlServer
from ckptbench.run.control.variables import (
    OF_THE_HEAP,
    RANK,
    STEADY_HEAP,
    TUNABLES,
    rank_environment,
    read_assignment,
    steady_heap,
)
from tests.living import is_running

SECOND = RankAssignment(rank=1, node="here", local_rank=1)
SOURCE = Path(__file__).resolve().parents[2] / "src"
PATIENCE_S = 300


def python(tmp_path: Path, rank: int, code: str) -> Process:
    """A process that runs `code` with its output in `rank-<rank>.log`."""
    log = tmp_path / f"rank-{rank}.log"
    redirect = (
        f"import os,sys,time; f=open({str(log)!r},'w',1); sys.stdout=f; os.dup2(f.fileno(),2)\n"
    )
    return Process([sys.executable, "-c", redirect + code], {}, [log])


def run(*processes: Process, timeout_seconds: float | None = None) -> None:
    run_with(Limits(timeout_seconds=timeout_seconds), *processes)


def run_with(limits: Limits, *processes: Process) -> None:
    """Run processes that do not call their launcher."""
    control = ControlServer(assign_ranks(["here"] * len(processes)), host="127.0.0.1")
    run_processes(list(processes), dict(os.environ), limits, control)


def after(path: Path) -> str:
    """Code that waits until the other process has written `path`."""
    return f"[time.sleep(0.02) for _ in iter(lambda: os.path.exists({str(path)!r}), True)]"


def gone(pid: int) -> bool:
    """Waits for it; the bound is for a machine under load."""
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_a_run_ends_when_all_have_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run(python(tmp_path, 0, "print('hello')"), python(tmp_path, 1, "print('there')"))
    assert {"[rank-0] hello", "[rank-1] there"} <= set(caplog.messages)


def test_a_rank_that_dies_ends_the_others_and_is_quoted(tmp_path: Path) -> None:
    waits = python(
        tmp_path, 0, f"open({str(tmp_path / 'pid')!r},'w').write(str(os.getpid())); time.sleep(600)"
    )
    dies = python(tmp_path, 1, f"{after(tmp_path / 'pid')}; print('the reason'); sys.exit(3)")
    with pytest.raises(LaunchError, match=r"rank-1 ended with exit status 3;(.|\n)*the reason"):
        run(waits, dies)
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_rank_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "GRACE_SECONDS", 0.3)
    stubborn = python(
        tmp_path, 0,
        f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(tmp_path / 'pid')!r},'w').write(str(os.getpid())); time.sleep(600)",
    )  # fmt: skip
    with pytest.raises(LaunchError, match="rank-1 ended with exit status 1"):
        run(stubborn, python(tmp_path, 1, f"{after(tmp_path / 'pid')}; sys.exit(1)"))
    assert gone(int((tmp_path / "pid").read_text()))


def test_an_environment_without_its_python_is_one_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "bin" / "python")
    with pytest.raises(
        LaunchError, match=rf"{missing} cannot be started: No such file.*remove the"
    ):
        run(Process([missing], {}, [tmp_path / "rank-0.log"]))


def test_a_log_that_is_no_file_is_one_error(tmp_path: Path, never_hangs: None) -> None:
    """A rank that opens a FIFO for its output would wait for a reader for ever."""
    os.mkfifo(log := tmp_path / "rank-0.log")
    with pytest.raises(LaunchError, match=rf"{log} cannot be written: it is no regular file; "):
        run(Process([sys.executable, "-c", ""], {}, [log]))


def test_what_does_not_end_when_its_ranks_are_through_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits_module, "PART_SECONDS", 0.3)
    server = ControlServer([RankAssignment(rank=0, node="here", local_rank=0)], host="127.0.0.1")
    code = (
        f"from ckptbench.run.control.link import Link; link = Link.open({server.address!r}, {server.token!r}, rank=0, node='here');"
        "link.rendezvous(rank=0, node='here', device='cpu');"
        f"open({str(tmp_path / 'pid')!r},'w').write(str(os.getpid())); link.close(); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    run_processes([python(tmp_path, 0, code)], environment, Limits(), server)
    assert gone(pid := int((tmp_path / "pid").read_text()))
    assert f"goodbye 0.3 s ago: ended what still ran, rank-0 ({pid})" in caplog.text


def test_of_several_that_died_the_first_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both come to their ends, however slowly.
    monkeypatch.setattr(child_process, "GRACE_SECONDS", PATIENCE_S)
    control = ControlServer(assign_ranks(["here", "here"]), host="127.0.0.1")
    noticed = tmp_path / "noticed"

    def hung_up(connection: Connection) -> None:
        ControlServer.hung_up(control, connection)
        noticed.touch()

    monkeypatch.setattr(control, "hung_up", hung_up)

    def dies(rank: int, moment: str, words: str) -> Process:
        code = (
            f"from ckptbench.run.control.link import Link; link = Link.open({control.address!r}, {control.token!r}, rank={rank}, node='here');"
            f"link.rendezvous(rank={rank}, node='here', device='cpu');"
            f"{moment}; print({words!r}); link.hang_up(); open({str(tmp_path / str(rank))!r}, 'w');"
            f"{after(tmp_path / '0')}; sys.exit(1)"
        )
        process = python(tmp_path, rank, code)
        return replace(process, variables={RANK: str(rank)}, is_rank=True)

    second = dies(0, after(noticed), "I missed the other")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with pytest.raises(LaunchError, match=r"rank-1 ended with exit status 1;(.|\n)*the reason"):
        run_processes(
            [second, dies(1, "pass", "the reason")],
            environment,
            Limits(grace_s=PATIENCE_S),
            control,
        )


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> ControlServer:
    """The line of a run of one rank that has said goodbye."""
    monkeypatch.setattr(ControlServer, "all_parted", True)
    monkeypatch.setattr(ControlServer, "missing", [])
    return ControlServer([SECOND], host="127.0.0.1")


def test_a_run_that_is_through_is_not_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: ControlServer
) -> None:
    monkeypatch.setattr(limits_module, "PART_SECONDS", 0.3)
    limits = Limits(timeout_seconds=1, started=time.monotonic() - 100)
    run_processes([python(tmp_path, 0, "time.sleep(600)")], dict(os.environ), limits, through)


def test_a_run_that_is_through_makes_haste_where_it_is_told_to_stop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    through: ControlServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(limits_module, "HASTY_PART_SECONDS", 0.3)
    limits = Limits(stop=StopRequest(signal="SIGUSR2"))
    run_processes([python(tmp_path, 0, "time.sleep(600)")], dict(os.environ), limits, through)
    assert "goodbye 0.3 s ago" in caplog.text


def test_a_run_that_is_told_to_stop_is_not_started_again_when_it_loses_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scheduler ends it soon, and has it go on later."""
    monkeypatch.setattr(ControlServer, "missing", [])  # all have come up

    def is_started_again(stop: StopRequest) -> bool:
        server = ControlServer([RankAssignment(0, "here", 0)], host="127.0.0.1")
        dies = [python(tmp_path, 0, "sys.exit(3)")]
        return run_processes(
            dies, dict(os.environ), Limits(stop=stop), server, after=lambda _: Verdict.RELAUNCH
        )

    assert is_started_again(StopRequest())
    with pytest.raises(LaunchError, match="rank-0 ended with exit status 3"):
        is_started_again(StopRequest(signal="SIGUSR2"))


def test_ranks_die_with_their_launcher(tmp_path: Path) -> None:
    launcher = (
        "import os; from pathlib import Path; from ckptbench.launch.limits import Limits; from ckptbench.launch.watch import run_processes; from ckptbench.launch.starters import Process; from ckptbench.run.control.server import ControlServer;"
        "from ckptbench.run.control.ranks import assign_ranks; control = ControlServer(assign_ranks(['a']), host='127.0.0.1');"
        f"run_processes([Process(['sleep', '600'], {{}}, [Path({str(tmp_path / 'rank-0.log')!r})])], dict(os.environ), Limits(), control)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", launcher], env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    child = first_child(started.pid)
    started.send_signal(signal.SIGKILL)
    started.wait()
    assert gone(child)


def first_child(pid: int) -> int:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if children := path.read_text().split():
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError(f"{pid} started nothing")


def test_a_follower_hands_on_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    follower = LogFollower(path)
    assert follower.new_lines() == []
    path.write_text("one\ntwo\nthr")
    assert follower.new_lines() == ["one", "two"]
    with path.open("a") as file:
        file.write("ee\n")
    assert follower.new_lines() == ["three"]
    assert follower.tail == ["one", "two", "three"]


def test_what_the_launcher_tells_is_what_the_rank_reads() -> None:
    assignments = assign_ranks(["node1", "node1", "node2"])
    told = rank_environment(
        assignments, threads=4, control="a:1", token="t", logs="/logs", launched="boot 1 2"
    )
    assert read_assignment({**told, "PMI_RANK": "1"}) == (assignments[1], 3)
    by_srun = {**told, "CKPTBENCH_RANK_SOURCE": "SLURM_PROCID", "SLURM_PROCID": "2"}
    assert read_assignment(by_srun)[0] == RankAssignment(rank=2, node="node2", local_rank=0)
    assert told["OMP_NUM_THREADS"] == told["OPENBLAS_NUM_THREADS"] == "4"


def test_memory_that_a_rank_has_taken_is_kept() -> None:
    """Of 40 MB, which glibc by itself gives back to the kernel, no page is taken a second time."""
    program = (
        "import resource\n"
        "for _ in range(3):\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    bytearray(b'1') * 40_000_000\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    plain = {n: v for n, v in os.environ.items() if n not in (TUNABLES, *OF_THE_HEAP)}
    pages = [
        int(subprocess.check_output([sys.executable, "-c", program], env={**plain, **heap}))
        for heap in (steady_heap(plain), {})
    ]
    assert pages[0] < 10 < pages[1]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"HOME": "/"}, {TUNABLES: STEADY_HEAP}),
        ({"MALLOC_ARENA_MAX": "2"}, {TUNABLES: STEADY_HEAP}),
        ({TUNABLES: "glibc.rtld.nns=4"}, {TUNABLES: f"glibc.rtld.nns=4:{STEADY_HEAP}"}),
        ({TUNABLES: "glibc.malloc.check=1"}, {TUNABLES: "glibc.malloc.check=1"}),
        ({"MALLOC_TRIM_THRESHOLD_": "9"}, {"MALLOC_TRIM_THRESHOLD_": "9"}),
    ],
    ids=str,
)
def test_how_a_user_has_memory_taken_stays(given: dict[str, str], found: dict[str, str]) -> None:
    assert steady_heap(given) == found


def test_a_rank_outside_of_a_launcher_says_so() -> None:
    with pytest.raises(
        LaunchError, match=r"ranks are started by `python -m ckptbench\.workflow train-cell`"
    ):
        read_assignment({})


def test_a_job_without_gpus_takes_none_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(LaunchError, match="which has 0 visible GPUs"):
        see_one_gpu(SECOND)


@pytest.mark.parametrize("words", ["NoDevFiles", "none", "void", "-1", "all", "-1,0"])
def test_words_that_the_driver_does_not_know_are_no_gpu(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", words)
    with pytest.raises(LaunchError, match=f"0 visible GPUs .CUDA_VISIBLE_DEVICES is '{words}'"):
        see_one_gpu(RankAssignment(rank=0, node="here", local_rank=0))


@pytest.mark.parametrize("words", ["0,-1,1", "0,,1", "0,none,1", "0,"])
def test_the_list_of_gpus_ends_where_the_driver_ends_it(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", words)
    with pytest.raises(LaunchError, match="1 visible GPU "):
        see_one_gpu(SECOND)


@pytest.mark.parametrize("words", ["0,0", "0,1, 0", "GPU-5c12aa01,GPU-5c12aa01"])
def test_a_gpu_that_is_named_twice_is_refused(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", words)
    with pytest.raises(LaunchError, match="names a GPU twice"):
        see_one_gpu(SECOND)


@pytest.mark.parametrize(
    ("visible", "mine"),
    [("4,7", "7"), ("0,1,2", "1"), ("0, 1", "1"), ("GPU-8932f937,MIG-1c2b", "MIG-1c2b")],
)
def test_a_rank_sees_the_gpu_of_its_own(
    monkeypatch: pytest.MonkeyPatch, visible: str, mine: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    see_one_gpu(SECOND)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == mine


def test_where_the_driver_lists_no_gpus_the_devices_tell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So it is in some containers."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that it is taken back at the end
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("ckptbench.run.control.joining.GPU_LIST", tmp_path / "hidden")
    monkeypatch.setattr("ckptbench.run.control.joining.DEVICES", tmp_path)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert see_one_gpu(SECOND) == "1"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    (tmp_path / "nvidia1").unlink()
    with pytest.raises(LaunchError, match="which has 1 visible GPU:"):
        see_one_gpu(SECOND)


def test_more_ranks_than_gpus_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(LaunchError, match="rank 1 is number 2 on here, which has 1 visible GPU "):
        see_one_gpu(SECOND)


def test_a_restarted_attempt_has_what_is_left_of_its_runs_time(tmp_path: Path) -> None:
    limits = Limits(timeout_seconds=60, started=time.monotonic() - 61)
    with pytest.raises(LaunchError, match=r"took longer than its 60 s \(limits.run_minutes\)"):
        run_with(limits, python(tmp_path, 0, "time.sleep(600)"))


def test_a_restarted_attempt_ends_where_the_workflow_is_gone_meanwhile(tmp_path: Path) -> None:
    limits = Limits(parent=1)  # not this process' parent: what the first attempt had is no more
    with pytest.raises(LaunchError, match="the workflow that started this run is gone"):
        run_with(limits, python(tmp_path, 0, "time.sleep(600)"))


def test_die_with_parent_asks_the_kernel() -> None:
    code = "from ckptbench.common.processes import die_with_parent as d; d(); import ctypes as c; s=c.c_int(); c.CDLL(None).prctl(2, c.byref(s)); print(s.value)"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == signal.SIGKILL


def joining(tmp_path: Path, control: ControlServer, rank: int, first: str, again: str) -> Process:
    """A rank of two that does `first`, and where it is restarted `again`; `link` is its connection to the launcher."""
    code = (
        f"from ckptbench.run.control.link import Link; link = Link.open({control.address!r}, {control.token!r}, rank={rank}, node='here');"
        f"link.rendezvous(rank={rank}, node='here', device='cpu');"
        f"open({str(tmp_path / 'lives')!r}, 'a').write('{rank}');"
        f"exec({again!r} if link.is_replacement else {first!r}); link.close()"
    )
    process = python(tmp_path, rank, code)
    return replace(process, variables={RANK: str(rank)}, is_rank=True)


DIES = "link.hang_up(); os._exit(3)"


def replaced(tmp_path: Path, first: str, again: str) -> tuple[str, list[Loss]]:
    """Run two ranks of which the second is lost and started again. Returns who has come up, and the losses."""
    control = ControlServer(assign_ranks(["here", "here"]), host="127.0.0.1")
    losses = []

    def after_loss(loss: Loss) -> Verdict:
        losses.append(loss)
        return Verdict.REPLACE

    processes = [
        joining(tmp_path, control, 0, first, ""),
        joining(tmp_path, control, 1, DIES, again),
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    limits = Limits(timeout_seconds=PATIENCE_S, grace_s=0)
    assert not run_processes(processes, environment, limits, control, after=after_loss)
    return (tmp_path / "lives").read_text(), losses


def test_a_lost_rank_is_started_again_and_ends_with_the_others(tmp_path: Path) -> None:
    """The survivor ends when the new one has joined it."""
    done = tmp_path / "done"
    lives, losses = replaced(
        tmp_path,
        f"{after(done)}; link.finish()",
        f"link.join(); open({str(done)!r}, 'w'); link.finish()",
    )
    assert sorted(lives) == ["0", "1", "1"]
    assert [(loss.ranks, loss.left) for loss in losses] == [((1,), (0,))]


def test_a_rank_that_is_not_ready_when_the_others_have_finished_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    up = tmp_path / "up"
    replaced(tmp_path, f"{after(up)}; link.finish()", f"open({str(up)!r}, 'w'); time.sleep(600)")
    assert "rank 1 is not needed any more: training is over" in caplog.messages


def test_a_rank_that_was_started_again_ends_by_itself_when_all_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears that its launcher is gone, before it is waited for."""
    monkeypatch.setattr(child_process, "GRACE_SECONDS", PATIENCE_S)
    up = tmp_path / "up"
    as_a_rank = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    control = ControlServer(assign_ranks(["here", "here"]), host="127.0.0.1")
    processes = [
        joining(tmp_path, control, 0, f"{after(up)}; {DIES}", ""),
        joining(
            tmp_path, control, 1, DIES, f"{as_a_rank}; open({str(up)!r}, 'w'); time.sleep(600)"
        ),
    ]
    verdicts = iter([Verdict.REPLACE, Verdict.GIVE_UP])
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with pytest.raises(LaunchError, match="rank-0 ended with exit status 3"):
        run_processes(
            processes,
            environment,
            Limits(grace_s=0),
            control,
            after=lambda _: next(verdicts),
        )
    assert "the launcher is gone: this rank ends" in (tmp_path / "rank-1.log").read_text()


def test_where_something_else_starts_the_ranks_all_are_started_again(tmp_path: Path) -> None:
    control = ControlServer(assign_ranks(["here", "here"]), host="127.0.0.1")
    starters = [
        replace(joining(tmp_path, control, rank, code, ""), is_rank=False)
        for rank, code in enumerate(("time.sleep(600)", DIES))
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    verdict = run_processes(
        starters, environment, Limits(), control, after=lambda _: Verdict.REPLACE
    )
    assert verdict


def test_what_starts_ranks_says_that_the_kernel_has_killed_one_for_lack_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(range(100))
    monkeypatch.setattr(MemoryKills, "now", classmethod(lambda cls: cls(next(counts))))
    with pytest.raises(LaunchError, match=r"ended with exit status 137; the kernel has killed .* give the job more memory"):  # fmt: skip
        run(python(tmp_path, 0, "import sys; sys.exit(137)"))
