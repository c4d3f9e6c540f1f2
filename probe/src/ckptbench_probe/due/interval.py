"""When to save, decided while training goes on, from what its saves turn out to cost.

    when = Interval(mtbf="14h")
    for step, batch in enumerate(batches, 1):
        train(batch)
        if when.due(step):
            save({..., "when": when.state_dict()})

All ranks call `due` at each step. Rank 0 measures and plans; the others receive its plan a few steps after each save, and need to
talk to nobody in between. The cost of a save is all time from the `due` that is true until steps are as fast as before, beyond what
these steps usually take: the stall on the slowest rank, as steps wait for one another, and the slower steps beside a save in the background.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any, Callable

from ckptbench_probe.due.exchange import Exchange, Plan, connection
from ckptbench_probe.due.learned import Learned
from ckptbench_probe.due.target import Target, Time, wrong
from ckptbench_probe.variables import seat

COMPILING = 3
"""Steps at the start of a process that are not timed."""
FIRST, FIRST_S = 24, 4.0
"""The first save comes after so many steps; after 16 if eight of them take so long."""
AFTER = 4
"""Steps after a save at which its cost is looked at for the first time."""
UNSURE = 16
"""Steps after a save within which slower ones are found that vary much."""
QUIET = 64
"""Gaps between steps that say how long one takes, and how much that varies."""


class Interval:
    """Says when a save is due.

    `mtbf`: mean time between failures of the job, as `14h`, `8min` or `3d`; or `gpu_mtbf` of one GPU, with `ranks` (default: those of this training).
    `least`, `most`: bounds of the time between two saves; with `most` and no `mtbf` it is the interval. `exchange`: broadcasts a small dict
    from rank 0, where neither torch.distributed nor mpi4py joins the ranks. Raises ValueError for a value that makes no sense.
    """

    def __init__(
        self,
        *,
        mtbf: Time | None = None,
        gpu_mtbf: Time | None = None,
        ranks: int | None = None,
        least: Time | None = None,
        most: Time | None = None,
        exchange: Exchange | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if ranks is not None and (not isinstance(ranks, int) or ranks < 1):
            raise wrong(f"ranks is {ranks!r}: use a whole number from 1")
        self._target = Target.read(mtbf, gpu_mtbf, least, most)
        self._ranks = ranks
        self._exchange = exchange
        self._is_joined = False
        self._clock = clock
        self._learned = Learned()
        """Equal on all ranks."""
        self._calls = self._at = 0
        """Steps since the last save, or since the start."""
        self._step: int | None = None
        self._answer = False
        self._next: int | None = None
        self._look: int | None = 2 * AFTER
        self._saved = False
        """Whether the cost of the last save is not known yet."""
        self._patience = 0
        """Steps for which slower ones are taken to be due to the save; 0 where none were slower."""
        self._stall_s: float | None = None
        """What the save has cost until it was looked at for the first time."""
        self._before_s = self._begun_s = 0.0
        self._save_s = -math.inf
        self._since_s = math.inf
        """Between the starts of the last two saves."""
        self._begun_at = 0
        self._period_s: float | None = None
        """Mean step of the time between the last save's end and the next one's begin."""
        self._parts: list[float] = []
        """Mean steps of the parts of the time before the first save."""
        self._gaps: deque[float] = deque(maxlen=QUIET)
        self._beside: deque[float] = deque(maxlen=UNSURE - 1)
        self._future: Any = None
        self._finished_s: float | None = None

    @property
    def interval(self) -> int | None:
        """Steps between two saves, as planned now. None until the first save's cost is known."""
        return self._learned.interval or None

    def due(self, step: int) -> bool:
        """Whether to save now. The same on all ranks; the same again if it is asked twice of a step."""
        if step == self._step:
            return self._answer
        if not self._is_joined:
            self._join()
        taken = step - self._step if self._step is not None and step > self._step else 1
        self._step, now_s = step, self._clock()
        self._calls += 1
        self._at += taken
        if self._calls > COMPILING:
            gaps = self._beside if self._saved else self._gaps
            gaps.append((now_s - self._before_s) / taken)
        elif self._calls == COMPILING and not self._saved:
            now_s = self._begin()
        if self._look is not None and self._at >= self._look:
            now_s = self._synchronised_s()
            self._agree(now_s)
        self._answer = self._next is not None and self._at >= self._next
        if self._answer:
            now_s = self._save()
        self._before_s = now_s
        return self._answer

    def saving(self, future: Any) -> Any:
        """Returns `future`, that of an asynchronous save: no other save is due before it is done."""
        if not hasattr(future, "add_done_callback"):
            raise TypeError(f"ckptbench_probe.Interval: saving() needs a future with add_done_callback, not {type(future).__name__}")  # fmt: skip
        self._future, self._finished_s = future, None
        future.add_done_callback(self._finished)
        return future

    def state_dict(self) -> Plan:
        """What the saves have cost so far, and the interval. Equal on all ranks; put it into the checkpoint."""
        return self._learned.as_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after a restart, the interval counted from the checkpoint. A restart is not counted as a failure: it may have been a time limit."""
        self._learned = Learned.of(state)
        if self._learned.interval:
            self._next, self._look = self._learned.interval, None

    def _join(self) -> None:
        if self._exchange is None:
            ranks, self._exchange = connection()
        else:
            own = seat()
            ranks = own.ranks if own is not None else 1
        self._target.of(self._ranks or ranks)
        self._is_joined = True

    def _synchronised_s(self) -> float:
        """The time, when the GPU has done all that it was given: programs run ahead of it."""
        cuda: Any = sys.modules.get("torch.cuda")
        if cuda is not None and cuda.is_initialized():
            cuda.synchronize()
        return self._clock()

    def _begin(self) -> float:
        """Of a period without a save."""
        self._begun_s, self._begun_at = self._synchronised_s(), self._at
        return self._begun_s

    def _save(self) -> float:
        now_s = self._synchronised_s()
        steps = self._at - self._begun_at
        self._period_s = (now_s - self._begun_s) / steps if self._calls > COMPILING and steps > 0 else None  # fmt: skip
        self._at, self._next, self._look = 0, None, AFTER
        self._since_s = now_s - self._save_s
        self._saved, self._begun_s, self._save_s = True, now_s, now_s
        self._future, self._finished_s, self._patience, self._stall_s = None, None, 0, None
        self._beside.clear()
        return now_s

    def _finished(self, future: Any) -> None:
        if future is self._future:
            self._finished_s = self._clock()

    def _agree(self, now_s: float) -> None:
        """All ranks plan, and take the plan of rank 0."""
        assert self._exchange is not None
        plan = self._exchange(self._plan(now_s))
        self._next, self._look = plan["next"], plan["look"]
        self._learned = Learned.of(plan["learned"])
        if self._look is None:
            self._saved = False
        if not self._saved:
            self._begin()

    def _plan(self, now_s: float) -> Plan:
        learned = Learned.of(self.state_dict())
        planned = self._after_save(learned, now_s) if self._saved else self._first(learned, now_s)
        return {**planned, "learned": learned.as_dict()}

    def _after_save(self, learned: Learned, now_s: float) -> Plan:
        at, passed_s = self._at, now_s - self._begun_s
        if self._period_s is not None:
            learned.add_period(self._period_s)
            self._period_s = None
        cost_s = passed_s - at * learned.step_s
        look, took_s = at + max(at // AFTER, 1), 0.0
        self._stall_s = stall_s = cost_s if self._stall_s is None else self._stall_s
        if self._future is not None:
            if self._finished_s is None:
                return {"next": None, "look": look}
            took_s = self._finished_s - self._begun_s
        elif self._is_slow(AFTER - 1) or (not self._patience and self._is_slow(UNSURE)):
            if self._patience == 0:
                self._patience = 2 * self._target.steps(cost_s, 0.0, learned.step_s)
            if at < self._patience:
                return {"next": None, "look": min(look, self._patience)}
            cost_s = stall_s  # steps that stay slow have another reason
            self._gaps.clear()
        elif self._patience:
            took_s = passed_s
        elif at < min(UNSURE, learned.interval // 2) and self._is_slow(UNSURE, surely=False):
            return {"next": None, "look": look}
        else:
            cost_s = stall_s  # more steps add nothing but their spread
        learned.add_save(cost_s, took_s, self._since_s, self._target)
        return {"next": max(learned.interval, at + 1), "look": None}

    def _first(self, learned: Learned, now_s: float) -> Plan:
        """The first save shows what one costs, so it comes as soon as the time of a step is known."""
        at, passed_s = self._at, now_s - self._begun_s
        if self._calls > COMPILING:
            self._parts.append(passed_s / (at - self._begun_at))
        if len(self._parts) < 2 or (at < FIRST and passed_s < FIRST_S):
            return {"next": None, "look": at + 2 * AFTER}
        # In the others it has compiled or evaluated, or there are only small differences.
        learned.steps_s = [max(min(self._parts), 1e-9)]
        return {"next": max(math.ceil(self._target.least_s / learned.step_s), at), "look": None}

    def _is_slow(self, last: int, *, surely: bool = True) -> bool:
        """Whether the last steps after the save are slower than those before it. `surely`: beyond their spread, of which more steps leave less."""
        beside = [*self._beside][-last:]
        if not self._gaps or not beside:
            return False
        usual = median(self._gaps)
        spread = median([abs(one - usual) for one in self._gaps]) if surely else 0.0
        most = 3 * spread * math.sqrt((AFTER - 1) / max(len(beside), AFTER - 1))
        return median(beside) > 1.02 * usual + most
