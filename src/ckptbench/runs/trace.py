"""The reader of traces: it sorts the events of one rank into a Trace. Module `events` defines the events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.errors import RunFolderError
from ckptbench.runs import events
from ckptbench.runs.events import (
    Captured,
    Digest,
    Durable,
    End,
    Epoch,
    Evaluation,
    Event,
    Hold,
    Kill,
    Phase,
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
        columns = [
            np.concatenate([getattr(block, name) for block in blocks])
            for name in ("epoch", "index", "start_ns", "end_ns", "loss")
        ]
        reversed_index = columns[1][::-1]
        _, last = np.unique(reversed_index, return_index=True)
        kept = len(reversed_index) - 1 - last
        return cls(*(column[kept] for column in columns))


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
class Trace:
    """The events of one rank. If two attempts hold the same step, epoch or checkpoint, the later one counts."""

    path: Path
    starts: list[Start] = field(default_factory=list)
    phases: list[tuple[int, Phase]] = field(default_factory=list)
    """Each with its attempt, from 1. Every attempt begins with the phase `launch`."""
    blocks: list[Steps] = field(default_factory=list)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    """By step."""
    epochs: dict[int, Epoch] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    digests: list[tuple[int, Digest]] = field(default_factory=list)
    kills: list[tuple[int, Kill]] = field(default_factory=list)
    """Digests and kills, each with its attempt, from 1."""
    ended: bool = False
    """Whether the last event is `end`."""
    attempt: int = 0

    def steps(self) -> Steps:
        if not self.blocks:
            raise RunFolderError(f'{self.path}: no "steps" event; {_remedy(self.path)}')
        return Steps.join(self.blocks)

    def add(self, event: Event) -> None:
        """Add the next event. Raises TypeError or ValueError if its values have wrong types."""
        self.ended = isinstance(event, End)
        match event:
            case Phase():
                self.attempt += event.name == "launch"
                self.phases.append((self.attempt, event))
            case Start():
                self.starts.append(event)
            case events.Steps():
                self.blocks.append(Steps.of_block(event))
            case Save() | Hold() | Captured() | Written() | Durable() | Retained():
                self._checkpoint(event.step).add(event)
            case Epoch():
                self.epochs[event.epoch] = event
            case Evaluation():
                self.evaluations[event.epoch] = event
            case Digest():
                self.digests.append((self.attempt, event))
            case Kill():
                self.kills.append((self.attempt, event))
            case SaveFailed():
                self.checkpoints.pop(event.step, None)

    def _checkpoint(self, step: int) -> Checkpoint:
        known = self.checkpoints.get(step)
        if known is None or known.attempt != self.attempt:
            known = self.checkpoints[step] = Checkpoint(self.attempt)
        return known


def read_trace(path: Path) -> Trace:
    """The trace in a file. Raises RunFolderError with the number of the first line that is not an event."""
    trace = Trace(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                trace.add(from_json(json.loads(line)))
            except NOT_AN_EVENT as error:
                raise _refused(path, number, error) from error
    return trace


def whole_events(path: Path) -> Iterator[Event]:
    """The events in the complete lines of a trace that may still be written to. No events if there is no file.

    Raises RunFolderError with the number of the first complete line that is not an event.
    """
    content = path.read_bytes() if path.exists() else b""
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
