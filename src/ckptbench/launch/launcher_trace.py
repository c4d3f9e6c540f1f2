"""What the launcher of a run saw, as a trace of its own: the counters of its machine, and losses if failures strike."""

from __future__ import annotations

from typing import Literal

from ckptbench.machine.clock import clock, day_ns
from ckptbench.machine.counters import Counters
from ckptbench.recovery.contract import Loss
from ckptbench.runs.events import AllEnded, Chosen, Counted, Event, Lost
from ckptbench.runs.layout import LAUNCHER_TRACE
from ckptbench.runs.plan import Plan
from ckptbench.runs.recorder import Recorder


class LauncherTrace:
    """Writes the launcher's trace. Close it when the run is over."""

    def __init__(self, plan: Plan, *, starts_ranks: bool = True) -> None:
        """`starts_ranks`: whether all ranks are processes that this one has started. Else their CPU time is unknown."""
        self._recorder = Recorder(plan.run_folder / LAUNCHER_TRACE)
        self._is_struck = plan.cell.is_struck
        self._starts_ranks = starts_ranks
        self._since_unix_ns: int | None = None

    def begins(self, attempt: int) -> None:
        """The attempt is about to be launched, or may begin."""
        self._count(attempt, "begin")

    def completed(self, attempt: int) -> None:
        """The attempt was the last one: no process of it runs any more."""
        self._count(attempt, "end")

    def lost(self, attempt: int, loss: Loss) -> None:
        """Ranks are lost, and the recovery is about to decide."""
        how = loss.how.partition("\n")[0]
        self._write(Lost(attempt=attempt, ranks=list(loss.ranks), how=how, unix_ns=day_ns()))

    def all_ended(self, attempt: int) -> None:
        """No process of the attempt runs any more, and another attempt follows."""
        self._write(AllEnded(attempt=attempt, unix_ns=day_ns()))
        self._count(attempt, "end")

    def begins_to_choose(self) -> None:
        """The launcher begins to choose what the next attempt goes on from."""
        self._since_unix_ns = day_ns()

    def chosen(self, attempt: int, step: int) -> None:
        """The attempt is about to begin, and goes on after `step`."""
        self._write(
            Chosen(
                attempt=attempt,
                step=step,
                since_unix_ns=self._since_unix_ns,
                unix_ns=day_ns(),
            )
        )

    def close(self) -> None:
        self._recorder.close()

    def _write(self, event: Event) -> None:
        if self._is_struck:
            self._recorder.write(event)

    def _count(self, attempt: int, when: Literal["begin", "end"]) -> None:
        now = Counters.now()
        slowest, fastest = now.mhz or (None, None)
        self._recorder.write(
            Counted(
                attempt=attempt,
                when=when,
                at_ns=clock(),
                cores=now.cores,
                busy_s=now.busy_s,
                own_s=now.own_s if self._starts_ranks else None,
                kernel_s=now.kernel_s,
                stolen_s=now.stolen_s,
                pressure_s=dict(now.pressure_s),
                mhz_min=slowest,
                mhz_max=fastest,
            )
        )
