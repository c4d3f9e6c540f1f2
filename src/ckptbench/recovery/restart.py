"""The recovery `restart`: when a rank dies, all ranks end, and training starts again from the newest checkpoint.

The launcher itself restarts a run only after the kills that the cell's history asks for. After any other death the run
has failed. Then a user or a scheduler's requeue must start it again.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import NoReturn

from ckptbench.checkpoints.version import Version
from ckptbench.errors import LaunchError
from ckptbench.recovery.contract import GiveUp, Loss, RankRecovery, Recovery, Relaunch, Verdict
from ckptbench.runs.kills import recorded_kills
from ckptbench.runs.plan import Plan
from ckptbench.runs.position import Position

log = logging.getLogger(__name__)


class Restart(Recovery):
    """The half that the launcher calls."""

    def command(self, rank: Sequence[str], plan: Plan) -> list[str]:
        return list(rank)

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        kills = recorded_kills(plan.run_folder, plan.cell.ranks)
        if len(kills) == plan.kills:
            return GiveUp(loss.how)
        last = kills[-1]
        moment = f'at stage "{last.inside}" of the checkpoint of' if last.inside else "after"
        log.info("rank %d killed itself %s step %d, as planned", last.rank, moment, last.step)
        return Relaunch()

    def next_attempt(self, plan: Plan, newest: Version | None) -> Plan:
        if newest is None:
            raise LaunchError(
                f"{plan.checkpoint_folder} holds no sound version to restart from; see the log above"
            )
        return resumed(plan, newest, attempt=plan.attempt + 1)


class RestartedRank(RankRecovery):
    """The half that every rank calls. The rank ends with the others."""

    def regroup(self, error: Exception, reached: Position) -> NoReturn:
        raise error

    def admit(self, reached: Position) -> None:
        return None


def resumed(plan: Plan, version: Version, *, attempt: int) -> Plan:
    """The plan of the attempt that goes on from `version`."""
    log.info("attempt %d goes on from %s", attempt, version.folder)
    kills = len(recorded_kills(plan.run_folder, plan.cell.ranks))
    return dataclasses.replace(plan, attempt=attempt, resume_from=version.folder, kills=kills)
