"""The trace of one rank, read: see `ckptbench.recorder` for what each event means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.errors import RunFolderError

Event = dict[str, Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FIELDS: Mapping[str, frozenset[str]] = {
    event: frozenset(names.split())
    for event, names in {
        "start": "attempt rank",
        "phase": "name start_ns end_ns",
        "state": "model optimizer rest",
        "steps": "epoch first_step start_ns end_ns loss",
        "checkpoint": "step epoch start_ns end_ns",
        "epoch": "epoch start_ns end_ns samples",
        "evaluation": "epoch start_ns end_ns samples loss_sum correct",
        "stop": "step",
        "digest": "step epoch when tensors rank_state",
        "kill": "step epoch inside",
        "end": "monotonic_ns",
    }.items()
}
"""What the analysis needs of each event."""
COMMITTED = frozenset(
    {"written_ns", "synced_ns", "checked_ns", "durable_ns", "retained_ns", "files"}
)
"""What the checkpoint events of a rank that writes hold besides."""
READ = frozenset({"read_bytes", "bytes"})
"""What the phase `load` holds besides."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Consecutive steps, one array element a step."""

    epoch: Ints
    index: Ints
    start_ns: Ints
    end_ns: Ints
    loss: Floats

    @classmethod
    def of_event(cls, event: Event) -> Self:
        start_ns, end_ns = (np.array(event[name], np.int64) for name in ("start_ns", "end_ns"))
        loss = np.array(event["loss"], np.float64)
        if not start_ns.shape == end_ns.shape == loss.shape:
            raise ValueError("start_ns, end_ns and loss differ in length")
        index = np.arange(event["first_step"], event["first_step"] + len(loss), dtype=np.int64)
        return cls(np.full(len(loss), event["epoch"], np.int64), index, start_ns, end_ns, loss)

    @classmethod
    def join(cls, blocks: list[Self]) -> Self:
        """All blocks as one, sorted by index; of two steps with the same index the later block's."""
        columns = [
            np.concatenate([getattr(block, name) for block in blocks])
            for name in ("epoch", "index", "start_ns", "end_ns", "loss")
        ]
        reversed_index = columns[1][::-1]
        _, last = np.unique(reversed_index, return_index=True)
        kept = len(reversed_index) - 1 - last
        return cls(*(column[kept] for column in columns))


@dataclass(slots=True)
class Trace:
    """What one rank did. Where two attempts hold the same step or epoch, the later one's."""

    path: Path
    starts: list[Event] = field(default_factory=list)
    phases: list[Event] = field(default_factory=list)
    """Each with the `attempt` it belongs to, as digests and kills are: every attempt begins with the phase `launch`."""
    blocks: list[Steps] = field(default_factory=list)
    checkpoints: dict[int, Event] = field(default_factory=dict)
    """By step."""
    epochs: dict[int, Event] = field(default_factory=dict)
    evaluations: dict[int, Event] = field(default_factory=dict)
    digests: list[Event] = field(default_factory=list)
    kills: list[Event] = field(default_factory=list)
    ended: bool = False
    """Whether the last event is `end`."""

    @property
    def attempt(self) -> int:
        return sum(phase["name"] == "launch" for phase in self.phases)

    def steps(self) -> Steps:
        if not self.blocks:
            raise RunFolderError(f'{self.path}: no "steps" event; {_remedy(self.path)}')
        return Steps.join(self.blocks)

    def add(self, event: Event) -> None:
        """Raises KeyError, TypeError or ValueError where the event is not what it should be."""
        kind = event["event"]
        missing = FIELDS[kind] - event.keys()
        if "durable_ns" in event:
            missing |= COMMITTED - event.keys()
        if event.get("name") == "load":
            missing |= READ - event.keys()
        if missing:
            raise ValueError(f'"{kind}" event without {", ".join(sorted(missing))}')
        self.ended = kind == "end"
        match kind:
            case "start":
                self.starts.append(event)
            case "phase":
                self.phases.append(event)
                event["attempt"] = self.attempt
            case "steps":
                self.blocks.append(Steps.of_event(event))
            case "checkpoint":
                self.checkpoints[event["step"]] = event
            case "epoch":
                self.epochs[event["epoch"]] = event
            case "evaluation":
                self.evaluations[event["epoch"]] = event
            case "digest":
                self.digests.append({**event, "attempt": self.attempt})
            case "kill":
                self.kills.append({**event, "attempt": self.attempt})


def read_trace(path: Path) -> Trace:
    """Raises RunFolderError with the number of the first line that is no event."""
    trace = Trace(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                trace.add(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise RunFolderError(
                    f"{path}:{number}: not an event: {error!s:.200}; {_remedy(path)}"
                ) from error
    return trace


def _remedy(path: Path) -> str:
    return f"remove {path.parent} to run the cell again"
