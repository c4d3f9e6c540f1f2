"""The program of one rank before a restart: `python -m ckptbench.training.assemble PLAN STEP`.

It runs on every node of a run whose strategy writes to levels of the nodes, and makes what they hold after STEP a version
of the shared store. See `checkpointing.shard_assembly`.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from ckptbench.checkpointing.levels import open_levels
from ckptbench.checkpointing.shard_assembly import assemble_shards
from ckptbench.common.errors import CkptbenchError
from ckptbench.common.remedies import in_one_line
from ckptbench.run.control.joining import join_ranks
from ckptbench.run.plan import Plan
from ckptbench.training.rank import become_rank

log = logging.getLogger("ckptbench.training.assemble")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path, help="plan.json of the run")
    parser.add_argument("step", type=int, help="the newest one that the shared store has; 0: none")
    given = parser.parse_args(arguments)
    become_rank()
    try:
        plan = Plan.read(given.plan)
        place, link = join_ranks(accelerator="cpu")
        levels = open_levels(plan, node=place.node)
        assemble_shards(levels, place, link.gather, identity=plan.identity, after=given.step)
    except (CkptbenchError, OSError) as error:
        log.error("%s: %s", type(error).__name__, in_one_line(error) or error)
        return 1
    link.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
