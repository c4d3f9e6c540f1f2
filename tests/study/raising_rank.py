"""A rank whose last number raises an exception in its third step: `python raising_rank.py PLAN FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ckptbench.matrix.registry import FRAMEWORKS, load
from ckptbench.run.control.variables import read_assignment
from ckptbench.run.plan import Plan
from ckptbench.training import rank

MESSAGE = "raised on purpose in the third step"


def main() -> int:
    framework: Any = load(FRAMEWORKS[Plan.read(Path(sys.argv[1])).cell.framework].location)
    assignment, ranks = read_assignment()
    step, done = framework.step, []

    def raise_in_third(self: Any, images: Any, labels: Any) -> float:
        done.append(len(done))
        if len(done) == 3:
            raise ArithmeticError(MESSAGE)
        loss: float = step(self, images, labels)
        return loss

    if assignment.rank == ranks - 1:
        framework.step = raise_in_third
    return rank.main(["cpu", sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
