"""The recovery `restart`: when a rank dies, all ranks end, and training starts again from the newest checkpoint.

The launcher itself restarts a run only after its planned failures. After any other death the run has failed. Then a user
or a scheduler's requeue must start it again.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Sequence

from ckptbench.checkpoints.version import Version
from ckptbench.errors import LaunchError
from ckptbench.recovery.contract import GiveUp, Loss, RankRecovery, Recovery, Relaunch, Verdict
from ckptbench.runs.events import Strike
from ckptbench.runs.plan import Plan
from ckptbench.runs.strikes import have_passed, recorded_strikes

log = logging.getLogger(__name__)


class Restart(Recovery):
    """The half that the launcher calls."""

    def command(self, rank: Sequence[str], plan: Plan) -> list[str]:
        return list(rank)

    def patience_s(self, plan: Plan) -> float | None:
        if not plan.cell.is_struck:
            return None
        options = self.options(plan)
        return float(options["patience_s"])

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        strikes = recorded_strikes(plan.run_folder)
        over = have_passed(plan.run_folder)
        ending = [each for each in strikes[plan.strikes :] if each.kind != "slow" and not has_no_part(each, loss, over)]  # fmt: skip
        if not ending:
            return GiveUp(loss.how)
        log.info("failure %d has struck, as planned: %s", ending[-1].failure, ending[-1].kind)
        return Relaunch()

    def next_attempt(self, plan: Plan, newest: Version | None) -> Plan:
        if newest is None and plan.cell.is_killed:
            raise LaunchError(
                f"{plan.checkpoint_folder} holds no sound version to restart from; see the log above"
            )
        return after_failures(plan, newest)


def has_no_part(strike: Strike, loss: Loss, over: Collection[int]) -> bool:
    """Whether this is a hang that had passed when ranks were lost by something else. `over` has the failures that are over."""
    return strike.kind == "hang" and not loss.hangs and strike.failure in over


class RestartedRank(RankRecovery):
    """The half that every rank calls. The rank ends with the others."""


def after_failures(plan: Plan, newest: Version | None) -> Plan:
    """The next attempt of a struck run, which begins anew where no version was durable before the failure."""
    if newest is not None:
        return resumed(plan, newest, attempt=plan.attempt + 1)
    log.info("attempt %d begins anew: there is no version yet", plan.attempt + 1)
    strikes = len(recorded_strikes(plan.run_folder))
    return dataclasses.replace(plan, attempt=plan.attempt + 1, resume_from=None, strikes=strikes)


def resumed(plan: Plan, version: Version, *, attempt: int) -> Plan:
    """The plan of the attempt that goes on from `version`."""
    log.info("attempt %d goes on from %s", attempt, version.folder)
    return dataclasses.replace(
        plan,
        attempt=attempt,
        resume_from=version.folder,
        strikes=len(recorded_strikes(plan.run_folder)),
    )
