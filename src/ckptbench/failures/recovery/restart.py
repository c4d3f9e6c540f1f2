"""The recovery `restart`: when a rank dies, all ranks end, and training starts again from the newest sound checkpoint.

Without one it starts from the beginning. The launcher itself restarts a run only after its planned failures. After any other
death the run has failed. Then a user or a scheduler's requeue must start it again.
"""

from __future__ import annotations

import logging

from ckptbench.failures.recovery.contract import Loss, RankRecovery, Recovery, Verdict
from ckptbench.runs.events import Strike
from ckptbench.runs.plan import Plan
from ckptbench.runs.strikes import have_passed, recorded_strikes

log = logging.getLogger(__name__)


class Restart(Recovery):
    """The half that the launcher calls."""

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        causes = [each for each in possible_causes(loss, plan) if each.kind != "slow"]
        if not causes:
            return Verdict.GIVE_UP
        log.info("failure %d has struck, as planned: %s", causes[-1].failure, causes[-1].kind)
        return Verdict.RELAUNCH


def possible_causes(loss: Loss, plan: Plan) -> list[Strike]:
    """The failures that struck this attempt, without hangs that had passed when ranks were lost by something else."""
    over = have_passed(plan.run_folder)
    # Those before this attempt have explained what ended it, also where an earlier launcher saw that.
    return [
        strike
        for strike in recorded_strikes(plan.run_folder)[plan.strikes :]
        if not (strike.kind == "hang" and not loss.hangs and strike.failure in over)
    ]


class RestartedRank(RankRecovery):
    """The half that every rank calls. The rank ends with the others."""
