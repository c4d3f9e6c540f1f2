"""The recovery `torchrun`: PyTorch's elastic agent starts the ranks; when one dies, it ends the others and restarts all.

The agent does not know checkpoints: the launcher chooses one for the new ranks. The agent does not see
hanging ranks: the launcher ends them. On several nodes Slurm starts an agent on each; with other schedulers all ranks must be on one node. An
injected node failure ends its ranks, not its agent.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

from ckptbench.common.processes import die_with_parent, ignore_stop_signals
from ckptbench.failures.recovery.contract import Loss, RankRecovery, Verdict, end_at_once
from ckptbench.failures.recovery.restart import Restart
from ckptbench.run.control.variables import CONTROL, LOCAL_RANK_SOURCE, NODES, ranks_here
from ckptbench.run.plan import Plan
from ckptbench.run.strikes import recorded_strikes

NUMBER = "LOCAL_RANK"
"""The variable in which the agent tells a rank its number on the node. The agents may count the nodes in another order than the launcher."""
PORT = "CKPTBENCH_RENDEZVOUS_PORT"
"""Where the agents of several nodes meet, on the launcher's host."""
OPTIONS = (
    "--rdzv-backend=c10d",
    "--log-dir=/dev/null",  # otherwise it leaves a folder in /tmp. Ranks have logs of their own
    "--signals-to-handle=SIGINT",  # by itself also SIGTERM, which schedulers send to all processes of a job
    "--no-python",
)
"""Of torchrun."""


class Torchrun(Restart):
    """The half that the launcher calls."""

    def __init__(self) -> None:
        self._answered = 0
        """How many strikes had been recorded when the last loss was answered."""

    def command(self, rank: Sequence[str], plan: Plan) -> list[str]:
        # A number that the launcher has inherited must not make the agent a rank.
        agent = ["env", "-u", NUMBER, rank[0], "-m", __name__]
        restarts = len(plan.failures)  # each of them ends all ranks once at most
        return [*agent, f"--max-restarts={restarts}", f"--rdzv-id={plan.run_id}", *rank]

    @contextmanager
    def environment(self) -> Iterator[Mapping[str, str]]:
        with socket.socket() as free:  # it is bound, but does not listen
            free.bind(("", 0))
            port = free.getsockname()[1]
        # With the last one the ranks would not need the agent's store, which is gone with it.
        yield {
            LOCAL_RANK_SOURCE: NUMBER,
            PORT: str(port),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        if not loss.ranks:  # the agent itself has ended
            return Verdict.GIVE_UP
        strikes = len(recorded_strikes(plan.run_folder))
        if strikes == self._answered:
            return Verdict.GIVE_UP
        verdict = super().after(loss, plan)
        self._answered = strikes
        return Verdict.RESTART_IN_PLACE if verdict is Verdict.RELAUNCH else verdict


class TorchrunRank(RankRecovery):
    """The half that every rank calls. The rank ends with the others."""

    def abort(self) -> NoReturn:
        """End this process at once: the agent waits for it, and Python would take a second."""
        end_at_once(1)


def meeting(environment: Mapping[str, str]) -> list[str]:
    """The options that tell the agent with this environment of its node and the others."""
    nodes = len({*environment[NODES].split(",")})
    host = environment[CONTROL].rpartition(":")[0]
    # One agent alone meets itself. Of several, one that runs on the host keeps what they tell each other.
    where = (
        ["--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
        if nodes == 1
        else [f"--rdzv-endpoint={host}:{environment[PORT]}"]
    )
    return [f"--nnodes={nodes}", f"--nproc-per-node={len(ranks_here(environment))}", *where]


def main() -> None:
    """Be the agent of this node. The arguments are further options of torchrun, and the command of a rank."""
    die_with_parent()
    ignore_stop_signals()
    from torch.distributed import run  # which takes seconds

    run.main([*OPTIONS, *meeting(os.environ), *sys.argv[1:]])


if __name__ == "__main__":
    main()
