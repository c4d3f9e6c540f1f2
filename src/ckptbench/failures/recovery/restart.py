"""The recovery `restart`: when a rank dies, all ranks end, and training restarts from the newest intact checkpoint.

Without a checkpoint it starts from the beginning. The launcher restarts a run by itself only after injected failures: after any
other failure a user or the scheduler's requeue must restart it.
"""

from __future__ import annotations

import logging

from ckptbench.failures.recovery.contract import Loss, Recovery, Verdict, possible_causes
from ckptbench.run.plan import Plan

log = logging.getLogger(__name__)


class Restart(Recovery):
    """The half that the launcher calls. Every rank ends with the others."""

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        causes = possible_causes(loss, plan)
        if not causes:
            return Verdict.GIVE_UP
        log.info("failure %d occurred, as planned: %s", causes[-1].failure, causes[-1].kind)
        return Verdict.RELAUNCH
