"""The reader of traces: it sorts the events of one rank into a Trace. Module `events` defines the events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import open_regular, read_regular
from ckptbench.common.remedies import cause
from ckptbench.run import events
from ckptbench.run.events import (
    Captured,
    Digest,
    Durable,
    End,
    Epoch,
    Evaluation,
    Event,
    Hold,
    Membership,
    Memory,
    Pause,
    Phase,
    Regroup,
    Retained,
    Save,
    SaveFailed,
    Start,
    Written,
    from_json,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NOT_AN_EVENT = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""The errors of a line that is not an event, raised while it is read."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a run. Every array has one element for each step."""

    epoch: Ints
    index: Ints
    start_ns: Ints
    end_ns: Ints
    loss: Floats

    @classmethod
    def of_block(cls, block: events.Steps) -> Self:
        """The steps of an event. Raises TypeError or ValueError if its lists do not hold numbers."""
        start_ns, end_ns = (np.array(each, np.int64) for each in (block.start_ns, block.end_ns))
        loss = np.array(block.loss, np.float64)
        index = np.arange(block.first_step, block.first_step + len(loss), dtype=np.int64)
        return cls(np.full(len(loss), block.epoch, np.int64), index, start_ns, end_ns, loss)

    @classmethod
    def join(cls, blocks: list[Self]) -> Self:
        """The steps of all blocks, sorted by index. If an index occurs twice, the step of the later block is taken."""
        every = cls._concatenated(blocks)
        reversed_index = every.index[::-1]
        _, last = np.unique(reversed_index, return_index=True)
        return every.at(len(reversed_index) - 1 - last)

    @classmethod
    def in_order(cls, blocks: list[Self]) -> Self:
        """The steps of all blocks in the order of time."""
        every = cls._concatenated(blocks)
        return every.at(np.argsort(every.start_ns, kind="stable"))

    @classmethod
    def _concatenated(cls, blocks: list[Self]) -> Self:
        nothing = np.zeros(0, np.int64)
        none = cls(nothing, nothing, nothing, nothing, np.zeros(0, np.float64))
        return cls(
            *(
                np.concatenate([getattr(block, column.name) for block in [none, *blocks]])
                for column in fields(cls)
            )
        )

    def at(self, places: NDArray[Any]) -> Self:
        """Those at these places, or those for which a mask is true."""
        return type(self)(*(getattr(self, column.name)[places] for column in fields(self)))


@dataclass(slots=True)
class Checkpoint:
    """All events of one checkpoint in one attempt."""

    attempt: int
    save: Save | None = None
    holds: list[Hold] = field(default_factory=list)
    captured: Captured | None = None
    written: dict[str, Written] = field(default_factory=dict)
    """By level."""
    durable: dict[str, Durable] = field(default_factory=dict)
    """By level. Empty on ranks that do not commit."""
    retained: Retained | None = None
    """None: nothing was to remove, or this rank does not commit."""

    def add(self, event: Save | Hold | Captured | Written | Durable | Retained) -> None:
        """Add an event of this checkpoint. The events of a background save may come in any order."""
        match event:
            case Save():
                self.save = event
            case Hold():
                self.holds.append(event)
            case Captured():
                self.captured = event
            case Written():
                self.written[event.level] = event
            case Durable():
                self.durable[event.level] = event
            case Retained():
                self.retained = event


@dataclass(slots=True)
class ProcessRun:
    """One process of a rank, from its launch on. All its times are of one clock."""

    launched_ns: int | None = None
    start: Start | None = None
    blocks: list[Steps] = field(default_factory=list)
    agreements: list[tuple[Membership, Regroup | None]] = field(default_factory=list)
    """Without a Regroup, further ranks were lost before all were ready."""
    phases: list[Phase] = field(default_factory=list)
    saved_ns: list[int] = field(default_factory=list)
    """Ends of its saves."""
    trained_ns: list[int] = field(default_factory=list)
    """Ends of its epochs and evaluations."""

    @property
    def memberships(self) -> list[Membership]:
        return [membership for membership, _ in self.agreements]

    @property
    def joined(self) -> bool:
        """Whether it joined ranks that were training, and so has their state and no version's."""
        if not self.agreements:
            return False
        membership, regroup = self.agreements[0]
        first = not self.blocks or membership.monotonic_ns <= self.blocks[0].start_ns[0]
        return bool(first and membership.step > (regroup.reached if regroup else 0))

    @property
    def joined_ns(self) -> int:
        """When it was ready to train with the ranks that it joined."""
        return self.agreements[0][0].monotonic_ns

    def add(self, event: Event) -> None:
        """Add its next event."""
        match event:
            case Start():
                self.start = event
            case Phase():
                self.phases.append(event)
            case events.Steps():
                self.blocks.append(Steps.of_block(event))
            case Membership():
                self.agreements.append((event, None))
            case Regroup() if self.agreements:
                self.agreements[-1] = (self.agreements[-1][0], event)
            case Save():
                self.saved_ns.append(event.end_ns)
            case Epoch() | Evaluation():
                self.trained_ns.append(event.end_ns)

    def steps(self) -> Steps:
        """All its steps in the order of time. A step that it did again is there twice."""
        return Steps.in_order(self.blocks)

    def unix_ns(self, monotonic_ns: int) -> int:
        """This moment on the clock of the day. Raises RunFolderError for a process that was never connected."""
        if self.start is None:
            raise RunFolderError('a process has steps and no "start" event')
        return monotonic_ns + self.start.unix_ns - self.start.monotonic_ns


@dataclass(slots=True)
class Trace:
    """The events of one rank. If two attempts hold the same step, epoch or checkpoint, the later one counts."""

    path: Path
    processes: list[ProcessRun] = field(default_factory=list)
    """Every launch of the rank, so every attempt, begins one."""
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    """By step."""
    epochs: dict[int, Epoch] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    pauses: list[Pause] = field(default_factory=list)
    digests: list[tuple[int, Digest]] = field(default_factory=list)
    memory: list[tuple[int, Memory]] = field(default_factory=list)
    """Digests and samples of memory, each with its attempt, from 1."""
    ended: bool = False
    """Whether the last event is `end`."""

    def steps(self) -> Steps:
        blocks = [block for process in self.processes for block in process.blocks]
        if not blocks:
            raise RunFolderError(f'{self.path}: no "steps" event; {_remedy(self.path)}')
        return Steps.join(blocks)

    @property
    def starts(self) -> list[Start]:
        return [process.start for process in self.processes if process.start is not None]

    @property
    def phases(self) -> list[tuple[int, Phase]]:
        """Each with its attempt, from 1."""
        attempts = enumerate(self.processes, start=1)
        return [(attempt, phase) for attempt, process in attempts for phase in process.phases]

    @property
    def memberships(self) -> list[Membership]:
        return [membership for process in self.processes for membership in process.memberships]

    @property
    def regroups(self) -> list[Regroup]:
        agreements = [each for process in self.processes for each in process.agreements]
        return [regroup for _, regroup in agreements if regroup is not None]

    def add(self, event: Event) -> None:
        """Add the next event. Raises TypeError or ValueError if its values have wrong types."""
        self.ended = isinstance(event, End)
        if isinstance(event, Phase) and event.name == "launch":
            self.processes.append(ProcessRun(event.start_ns))
        if not self.processes:
            self.processes.append(ProcessRun())
        self.processes[-1].add(event)
        attempt = len(self.processes)
        match event:
            case Save() | Hold() | Captured() | Written() | Durable() | Retained():
                self._checkpoint(event.step).add(event)
            case Epoch():
                self.epochs[event.epoch] = event
            case Evaluation():
                self.evaluations[event.epoch] = event
            case Pause():
                self.pauses.append(event)
            case Memory():
                self.memory.append((attempt, event))
            case Digest():
                self.digests.append((attempt, event))
            case Membership() | Regroup():
                for step in [step for step in self.checkpoints if step > event.step]:
                    del self.checkpoints[step]  # the rank saves it again
            case SaveFailed():
                self.checkpoints.pop(event.step, None)

    def _checkpoint(self, step: int) -> Checkpoint:
        attempt = len(self.processes)
        known = self.checkpoints.get(step)
        if known is None or known.attempt != attempt:
            known = self.checkpoints[step] = Checkpoint(attempt)
        return known


def read_trace(path: Path) -> Trace:
    """The trace in a file. Raises RunFolderError with the number of the first line that is not an event, and OSError for what is no file.

    A last line without its end is left out: its rank was lost while it wrote.
    """
    trace = Trace(path)
    with open(open_regular(path), "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                trace.ended = False
                break
            try:
                trace.add(from_json(json.loads(line)))
            except NOT_AN_EVENT as error:
                raise _refused(path, number, error) from error
    return trace


def whole_events(path: Path) -> Iterator[Event]:
    """The events in the complete lines of a trace that may still be written to. No events if there is no file.

    Raises RunFolderError with the number of the first complete line that is not an event, and for what is no file.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {cause(error)}; {_remedy(path)}") from error
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            event = from_json(json.loads(line))
        except NOT_AN_EVENT as error:
            raise _refused(path, number, error) from error
        yield event


def _refused(path: Path, number: int, error: Exception) -> RunFolderError:
    return RunFolderError(f"{path}:{number}: not an event: {error!s:.200}; {_remedy(path)}")


def last_events(path: Path, *kinds: type[Event]) -> list[Event]:
    """The last event of each kind. Raises RunFolderError if the trace has no event of a kind."""
    found = {type(event): event for event in whole_events(path)}
    if missing := [kind for kind in kinds if kind not in found]:
        raise RunFolderError(f"{path} lacks the events {sorted(map(events.name_of, missing))}")
    return [found[kind] for kind in kinds]


def _remedy(path: Path) -> str:
    return f"remove {path.parent} to run the cell again"
