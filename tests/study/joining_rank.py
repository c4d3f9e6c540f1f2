"""A rank of Chainer whose last number dies by SIGKILL when MPI has started and its segment still has a name.

`python joining_rank.py PLAN FOLDER`. Each rank writes the names of the segments that it has mapped to `FOLDER/<rank>`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from ckptbench.common.shared_memory import named_segments
from ckptbench.frameworks.chainer import framework
from ckptbench.run.control.variables import read_assignment
from ckptbench.training import rank


def main() -> int:
    plan, folder = sys.argv[1], Path(sys.argv[2])
    assignment, ranks = read_assignment()

    def die(prefix: str) -> None:
        """In the place of `forget_names`, which each rank calls when all have mapped the segment."""
        maps = Path("/proc/self/maps").read_text()
        mapped = [str(path) for path in named_segments(prefix) if f"{path}\n" in maps]
        (folder / str(assignment.rank)).write_text("\n".join(mapped))
        if assignment.rank == ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # until it is ended too

    framework.forget_names = die
    return rank.main(["cpu", plan])


if __name__ == "__main__":
    sys.exit(main())
