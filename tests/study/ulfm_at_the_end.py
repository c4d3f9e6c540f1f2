"""One of three ranks that Open MPI's mpiexec has started. The last of them is lost at the end of training.

    mpiexec --with-ft ulfm -n 3 python ulfm_at_the_end.py in_a_step|in_an_evaluation|after_the_end

Each of the others prints which ranks go on, and None where nobody had to regroup.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import cast

from ckptbench.common.errors import LaunchError
from ckptbench.failures.recovery.ulfm import UlfmRank
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.position import Position

REACHED = Position(step=8, epoch=1, step_in_epoch=4)
LATER_S = 0.5
"""Until then the first rank waits in its agreement."""


def main(when: str) -> None:
    number = int(os.environ["OMPI_COMM_WORLD_RANK"])
    world = RankContext(
        rank=number, local_rank=number, world_size=3, node="here", accelerator="cpu", threads=1,
        addresses=("127.0.0.1:1",) * 3,
    )  # fmt: skip
    rank = UlfmRank(world, cast(Link, None), {"replace": False})
    if when == "after_the_end":
        rank.finish()
    if number == 2:
        time.sleep(LATER_S if when == "in_an_evaluation" else 0)
        os.kill(os.getpid(), signal.SIGKILL)
    ranks = (
        None if when == "after_the_end" else end(rank, fails=when == "in_a_step" and number == 1)
    )
    print(f"rank {number} goes on with {ranks}", flush=True)
    rank._await_others()
    rank.leave(0)


def end(rank: UlfmRank, *, fails: bool) -> tuple[int, ...]:
    """Come to the end; or where the step `fails` before, regroup and come there then."""
    try:
        if fails:
            time.sleep(LATER_S)
            rank.barrier()
        rank.finish()
    except (LaunchError, rank._mpi.Exception) as error:
        ranks = rank.regroup(error, REACHED).ranks
        rank.finish()
        return ranks
    raise AssertionError("nobody is missed")


if __name__ == "__main__":
    main(sys.argv[1])
