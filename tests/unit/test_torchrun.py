"""The recovery `torchrun` without PyTorch: a small agent starts ranks anew, and the launcher chooses what they go on from."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Literal

import pytest
from test_struck_runs import LOSS, journal, plan, strike

from ckptbench.common.errors import LaunchError
from ckptbench.failures.recovery.contract import Loss, Verdict
from ckptbench.failures.recovery.torchrun import NUMBER, PORT, Torchrun, meeting
from ckptbench.launch.allocation import Allocation
from ckptbench.launch.limits import Limits
from ckptbench.launch.starters import Process, Program, rank_processes
from ckptbench.launch.watch import run_processes
from ckptbench.run.control.ranks import assign_ranks
from ckptbench.run.control.server import ControlServer
from ckptbench.run.control.variables import CONTROL, LOCAL_RANK_SOURCE, NODES, TOKEN, rank_of
from ckptbench.run.plan import Plan
from tests.living import is_running

PATIENCE_S = 300
SOURCE = Path(__file__).resolve().parents[2] / "src"
AGENT = """
import os, subprocess, sys, time
for attempt in range(int(sys.argv[2]) + 1):
    started = [
        subprocess.Popen([sys.executable, "-c", sys.argv[1], str(attempt)], env={**os.environ, "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    while None in (ended := [each.poll() for each in started]) and not any(ended):
        time.sleep(0.02)
    # SIGTERM would be of no use: ranks ignore it.
    if not any([each.wait() for each in started]):
        sys.exit(0)
sys.exit(1)
"""
"""Starts two ranks, and both anew when one has died, at most so many times."""
RANK = """
import os, signal, sys, time
from ckptbench.run.control.link import Link
from ckptbench.common.processes import die_with_parent
die_with_parent()
rank, attempt = int(os.environ["LOCAL_RANK"]), int(sys.argv[1])
link = Link.open(os.environ["CKPTBENCH_CONTROL"], os.environ["CKPTBENCH_TOKEN"], rank=rank, node="here")
link.rendezvous(rank=rank, node="here", device="cpu")
told = f"up {rank} {attempt} {link.launched is not None} {open(os.environ['CHOSEN']).read()} {os.getpid()}\\n"
os.write(1, told.encode())  # at once, or the lines of two ranks would mix
link.gather("all", 0)  # no rank strikes before both have read
if (attempt, rank) == (0, 1):
    os.kill(os.getpid(), getattr(signal, os.environ["BY"]))
if (attempt, rank) == (0, 0):
    time.sleep(600)
link.close()
"""

Scheduler = Literal["none", "slurm", "pbs"]
__all__ = ["plan"]


class Chosen:
    """What the launcher does between attempts: it writes down what was called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[str] = []
        path.write_text("0")

    def all_ended(self) -> None:
        self.calls.append("all ended")

    def choose(self) -> None:
        self.calls.append("choose")
        self.path.write_text(str(self.calls.count("choose")))


def run(
    tmp_path: Path,
    chosen: Chosen,
    verdicts: list[Verdict],
    *,
    restarts: int = 1,
    by: str = "SIGKILL",
) -> list[Loss]:
    losses: list[Loss] = []

    def after(loss: Loss) -> Verdict:
        losses.append(loss)
        return verdicts.pop(0) if loss.ranks else Verdict.GIVE_UP

    control = ControlServer(assign_ranks(["here", "here"]), host="127.0.0.1")
    environment = {
        **os.environ, "PYTHONPATH": str(SOURCE), CONTROL: control.address, TOKEN: control.token,
        NODES: "here,here", LOCAL_RANK_SOURCE: NUMBER, "CHOSEN": str(chosen.path), "BY": by,
    }  # fmt: skip
    environment.pop(NUMBER, None)
    command = [sys.executable, "-c", AGENT, RANK, str(restarts)]
    agent = Process(command, {}, [tmp_path / "starter.log"], ignores_stops=True)
    # Ranks that compute are not silent for so long, unless the machine is very busy.
    limits = Limits(patience_s=3.0 if by == "SIGSTOP" else None, grace_s=0.0)
    run_processes([agent], environment, limits, control, after=after, between=chosen)
    return losses


def ups(tmp_path: Path) -> list[list[str]]:
    lines = (tmp_path / "starter.log").read_text().splitlines()
    return sorted(line.split()[1:5] for line in lines if line.startswith("up"))


@pytest.mark.parametrize("by", ["SIGKILL", "SIGSTOP"])
def test_all_ranks_come_anew_and_begin_when_the_launcher_has_chosen(
    tmp_path: Path, by: str
) -> None:
    chosen = Chosen(tmp_path / "chosen")
    (loss,) = run(tmp_path, chosen, [Verdict.RESTART_IN_PLACE], by=by)
    assert 1 in loss.ranks
    assert loss.hangs == (by == "SIGSTOP")
    assert chosen.calls == ["all ended", "choose"]
    first = [["0", "0", "False", "0"], ["1", "0", "False", "0"]]
    assert ups(tmp_path) == sorted([*first, ["0", "1", "True", "1"], ["1", "1", "True", "1"]])


def test_an_agent_that_starts_no_ranks_anew_is_one_error(tmp_path: Path) -> None:
    chosen = Chosen(tmp_path / "chosen")
    with pytest.raises(LaunchError, match="starter ended with exit status 1; last lines"):
        run(tmp_path, chosen, [Verdict.RESTART_IN_PLACE], restarts=0)
    assert "choose" not in chosen.calls


def test_ranks_end_with_an_agent_that_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="rank-1 died"):
        run(tmp_path, Chosen(tmp_path / "chosen"), [Verdict.GIVE_UP], restarts=5)
    log = (tmp_path / "starter.log").read_text().splitlines()
    pids = [int(line.split()[-1]) for line in log if line.startswith("up")]
    assert pids
    deadline = time.monotonic() + PATIENCE_S
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_loss_is_left_to_the_agent_if_a_strike_explains_it(plan: Plan) -> None:
    recovery = Torchrun()
    assert recovery.after(LOSS, plan) == Verdict.GIVE_UP
    journal(plan.run_folder, strike(0))
    assert recovery.after(LOSS, plan) == Verdict.RESTART_IN_PLACE
    assert recovery.after(LOSS, plan) == Verdict.GIVE_UP, "one strike explains one loss"


def test_an_agent_that_has_ended_is_not_awaited(plan: Plan) -> None:
    journal(plan.run_folder, strike(0))
    gone = Loss(ranks=(), how="starter ended with exit status 1")
    assert Torchrun().after(gone, plan) == Verdict.GIVE_UP


def test_the_agent_may_start_ranks_as_often_as_failures_are_planned(plan: Plan) -> None:
    command = Torchrun().command(["/e/bin/python", "-m", "rank", "plan.json"], plan)
    agent = [
        "env",
        "-u",
        "LOCAL_RANK",
        "/e/bin/python",
        "-m",
        "ckptbench.failures.recovery.torchrun",
    ]
    assert command[:6] == agent
    assert "--max-restarts=2" in command
    assert command[-4:] == ["/e/bin/python", "-m", "rank", "plan.json"]


def test_the_agents_of_several_nodes_meet_at_the_launchers() -> None:
    with Torchrun().environment() as own:
        told = {**own, CONTROL: "head:7", NODES: "n1,n1,n2.site"}
    where = f"--rdzv-endpoint=head:{own[PORT]}"
    first, second = ({**told, "SLURMD_NODENAME": name} for name in ("n1", "n2"))
    assert meeting(first) == ["--nnodes=2", "--nproc-per-node=2", where]
    assert meeting(second) == ["--nnodes=2", "--nproc-per-node=1", where]
    alone = meeting({**told, NODES: "n1,n1", "SLURMD_NODENAME": "otherwise"})
    assert alone[:3] == ["--nnodes=1", "--nproc-per-node=2", "--rdzv-endpoint=127.0.0.1:0"]


def test_the_agent_is_none_of_the_ranks_that_it_starts() -> None:
    with Torchrun().environment() as own:
        of_agent = {**own, NODES: "n1,n2,n2", "SLURMD_NODENAME": "n2", "SLURM_PROCID": "0"}
    assert rank_of(of_agent) is None
    assert rank_of({**of_agent, "LOCAL_RANK": "1"}) == 2
    assert rank_of({"LOCAL_RANK": "3", "CKPTBENCH_RANK": "1"}) == 1, "it may be inherited"


def test_slurm_starts_an_agent_on_every_node(tmp_path: Path) -> None:
    assignments = assign_ranks(["n1", "n1", "n2"])

    def start(
        scheduler: Scheduler, here: str, nodes: tuple[str, ...] = ("n1", "n2")
    ) -> list[Process]:
        return rank_processes(
            Program(command=["agent"], logs=tmp_path, starts_node=True),
            Allocation(scheduler=scheduler, job_id="1", nodes=nodes, here=here),
            assignments if len(nodes) == 2 else assignments[:2],
            {},
        )

    (process,) = start("slurm", "n1")
    assert process.command[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--nodelist=n1,n2"} <= {*process.command}
    (alone,) = start("none", "n1", ("n1",))
    assert (alone.command, alone.ignores_stops) == (["agent"], True)
    with pytest.raises(LaunchError, match="only Slurm can start the ranks"):
        start("pbs", "n1")
