"""The kills that are recorded in the traces of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from ckptbench.runs.events import Kill, Phase
from ckptbench.runs.layout import trace_path
from ckptbench.runs.trace import whole_events


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKill:
    """One rank sent itself SIGKILL, as the run's history asked."""

    attempt: int
    """The attempt that the kill ended, from 1."""
    rank: int
    step: int
    epoch: int
    inside: str | None
    """Stage of the step's checkpoint at which the kill came. None: before a checkpoint of that step began."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, attempt: int, rank: int, kill: Kill) -> Self:
        return cls(attempt=attempt, rank=rank, step=kill.step, epoch=kill.epoch, inside=kill.inside)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        return cls(**content)


def recorded_kills(folder: Path, ranks: int) -> list[RecordedKill]:
    """The kills of all ranks, in the order of the attempts. The run may still be going on."""
    found = []
    for rank in range(ranks):
        attempt = 0
        for event in whole_events(trace_path(folder, rank)):
            if isinstance(event, Phase) and event.name == "launch":
                attempt += 1
            elif isinstance(event, Kill):
                found.append(RecordedKill.of(attempt, rank, event))
    return sorted(found, key=attrgetter("attempt"))
