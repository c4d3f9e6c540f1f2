"""A training under drawn failures, on a clock of its own: what an interval, or `Interval`, loses."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Protocol

from ckptbench.decide.costs import Recovering, Saving
from ckptbench.decide.model import best
from ckptbench_probe import Interval


class Policy(Protocol):
    def due(self, step: int) -> bool: ...


@dataclass
class Every:
    """A save every `steps` steps."""

    steps: int

    def due(self, step: int) -> bool:
        return step % self.steps == 0


class Future:
    """Of a save in the background."""

    def __init__(self) -> None:
        self._then: list[Any] = []

    def add_done_callback(self, call: Any) -> None:
        self._then.append(call)

    def end(self) -> None:
        for call in self._then:
            call(self)


@dataclass
class Machine:
    """Seconds. A save stalls training, and is durable `background_s` after its stall, in which steps take `slower` times longer."""

    step_s: float = 1.0
    spread: float = 0.03
    """Of steps, as a part of them."""
    stall_s: float = 3.0
    background_s: float = 0.0
    slower: float = 0.0
    names_its_saves: bool = False
    first: float = 3.0
    """The stall of the first save of a process, in usual ones."""
    evaluation_every: int = 0
    evaluation_s: float = 0.0
    compiling_s: float = 0.0
    now_s: float = 0.0

    def clock(self) -> float:
        return self.now_s


@dataclass
class Process:
    """One attempt, from a checkpoint until it fails."""

    machine: Machine
    policy: Policy
    draw: random.Random
    busy_until_s: float = 0.0
    future: Future | None = None
    saves: int = 0
    saved: list[tuple[float, int, Any]] = field(default_factory=list)
    """When it is durable, at which step, with which state."""

    def run(self, step: int, until_step: int, fails_at_s: float) -> int:
        """Returns the step that it ended at. It ends with a failure where the clock has passed that."""
        machine = self.machine
        started = step
        while step < until_step and machine.now_s < fails_at_s:
            step += 1
            takes_s = machine.step_s * (1 + machine.spread * (2 * self.draw.random() - 1))
            if machine.now_s < self.busy_until_s:
                takes_s *= 1 + machine.slower
            if machine.evaluation_every and step % machine.evaluation_every == 0:
                takes_s += machine.evaluation_s
            if step == started + 1:
                takes_s += machine.compiling_s
            machine.now_s += takes_s
            if self.future is not None and machine.now_s >= self.busy_until_s:
                self.future.end()
                self.future = None
            if self.policy.due(step):
                self.save(step)
        return step

    def save(self, step: int) -> None:
        """As scripts do: the save before must have ended."""
        machine = self.machine
        machine.now_s = max(machine.now_s, self.busy_until_s)
        state = self.policy.state_dict() if isinstance(self.policy, Interval) else None
        machine.now_s += machine.stall_s * (machine.first if self.saves == 0 else 1.0)
        self.saves += 1
        self.busy_until_s = machine.now_s + machine.background_s
        self.saved.append((self.busy_until_s, step, state))
        if machine.names_its_saves and isinstance(self.policy, Interval):
            self.future = Future()
            self.policy.saving(self.future)


def loses(
    machine: Machine, mtbf_s: float, steps: int, seed: int, every: int | None, *, keeps: bool = True
) -> float:
    """The part of the time that is lost until so many steps are done. `every`: steps between two saves; None: by `Interval`, whose state is kept."""
    failures, draw = random.Random(seed), random.Random(seed + 1_000_000)
    begun_s, step, state = machine.now_s, 0, None
    fails_at_s = machine.now_s + failures.expovariate(1 / mtbf_s)
    while step < steps:
        policy: Policy
        if every is None:
            policy = own = Interval(mtbf=mtbf_s, clock=machine.clock)
            if state is not None and keeps:
                own.load_state_dict(state)
        else:
            policy = Every(every)
        process = Process(machine, policy, draw)
        from_step = step
        step = process.run(step, steps, fails_at_s)
        if step < steps or machine.now_s >= fails_at_s:
            machine.now_s = max(machine.now_s, fails_at_s)
            whole = [
                (at, state) for durable_s, at, state in process.saved if durable_s <= fails_at_s
            ]
            step, state = whole[-1] if whole else (from_step, state)
            fails_at_s = machine.now_s + failures.expovariate(1 / mtbf_s)
    useful_s = steps * machine.step_s
    if machine.evaluation_every:
        useful_s += steps // machine.evaluation_every * machine.evaluation_s
    return 1 - useful_s / (machine.now_s - begun_s)


def best_every(machine: Machine, mtbf_s: float) -> int:
    """The best fixed interval, by the formula, of one who knows all costs."""
    saving = Saving(
        stall_s=machine.stall_s,
        durable_s=machine.stall_s + machine.background_s,
        slowdown_s=machine.background_s * machine.slower / (1 + machine.slower),
    )
    evaluation_s = machine.evaluation_s / max(machine.evaluation_every, 1)
    step_s = machine.step_s + evaluation_s
    return int(best(saving, Recovering(down_s=0.0), 1 / mtbf_s, step_s=step_s, fine=False).steps)
