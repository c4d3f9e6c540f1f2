"""What the launcher of a run saw of its losses, as a trace of its own."""

from __future__ import annotations

import time

from ckptbench.recovery.contract import Loss
from ckptbench.runs.events import AllEnded, Chosen, Event, Lost
from ckptbench.runs.layout import LAUNCHER_TRACE
from ckptbench.runs.plan import Plan
from ckptbench.runs.recorder import Recorder


class Seen:
    """Writes the launcher's trace, if failures strike the run."""

    def __init__(self, plan: Plan) -> None:
        self._recorder = Recorder(plan.run_folder / LAUNCHER_TRACE) if plan.cell.is_struck else None
        self._since_unix_ns: int | None = None

    def lost(self, attempt: int, loss: Loss) -> None:
        """Ranks are lost, and the recovery is about to decide."""
        how = loss.how.partition("\n")[0]
        self._write(Lost(attempt=attempt, ranks=list(loss.ranks), how=how, unix_ns=time.time_ns()))

    def all_ended(self, attempt: int) -> None:
        """No process of the attempt runs any more."""
        self._write(AllEnded(attempt=attempt, unix_ns=time.time_ns()))

    def begins_to_choose(self) -> None:
        """The launcher begins to choose what the next attempt goes on from."""
        self._since_unix_ns = time.time_ns()

    def chosen(self, attempt: int, step: int) -> None:
        """The attempt is about to begin, and goes on after `step`."""
        self._write(
            Chosen(
                attempt=attempt,
                step=step,
                since_unix_ns=self._since_unix_ns,
                unix_ns=time.time_ns(),
            )
        )

    def _write(self, event: Event) -> None:
        if self._recorder is not None:
            self._recorder.write(event)
