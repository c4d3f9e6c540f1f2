"""The launcher's part in a restart from local tiers of several nodes: it has the nodes assemble their shards."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from ckptbench.checkpointing.levels import has_local
from ckptbench.launch.allocation import own_allocation
from ckptbench.launch.limits import Limits
from ckptbench.launch.ranks import run_ranks
from ckptbench.launch.starters import Program
from ckptbench.run.plan import Plan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardAssembler:
    """Starts a program on every node (`training.assemble`) that copies the node's shards into one version of the shared store."""

    python: Path
    logs: Path
    limits: Limits

    def serves(self, plan: Plan) -> bool:
        """Whether the run writes to levels of the nodes, and its ranks are on several of them. Raises LaunchError."""
        if not has_local(plan):
            return False
        assignments = own_allocation(os.environ).assignments(plan.cell.ranks)
        return len({assignment.node for assignment in assignments}) > 1

    def bring_together(self, plan: Plan, *, after: int) -> None:
        """Assemble the newest step after `after`, if nodes hold one. No rank may run.

        Raises LaunchError if a node cannot copy its shards, and RunStopped if the run is told to stop meanwhile.
        """
        log.info("looks for checkpoints after step %d in the local tiers of all nodes", after)
        module = "ckptbench.training.assemble"
        program = Program(
            command=[str(self.python), "-m", module, str(plan.write()), str(after)], logs=self.logs
        )
        run_ranks(program, plan.cell.ranks, own_allocation(os.environ), self.limits)
