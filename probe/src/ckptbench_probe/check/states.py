"""What the ranks of one run have written of their state, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ckptbench_probe.check.recorder import BEGIN, SAVED, UPDATED
from ckptbench_probe.reading import Event, SaveSeen, read, whole_lines


@dataclass(frozen=True)
class State:
    """After an update, or before the first one of a process."""

    step: int | None
    """Updates since the training began, across restarts, where the state tells."""
    tensors: dict[str, str]
    """Digests, by name."""
    random: dict[str, str]
    rates: tuple[float, ...]
    saved: dict[str, str] = field(default_factory=dict)
    """Digests of what the program saved before the next update, by file and name."""


@dataclass
class Rank:
    begin: State | None = None
    """None where it cannot be seen."""
    after: dict[int, State] = field(default_factory=dict)
    """By the number of updates that the process has done."""
    attempts: int = 0
    """Processes that were this rank."""

    def at(self, update: int) -> State | None:
        """0: before the first."""
        return self.after.get(update) if update else self.begin


def ranks(folder: Path) -> dict[int, Rank]:
    """Of each rank, its first process that has a state."""
    found: dict[int, Rank] = {}
    traces = [whole_lines(path)[0] for path in folder.glob("trace-*.jsonl")]
    for events in sorted(filter(None, traces), key=lambda events: events[0]["unix_ns"]):
        states = [event for event in events if event["event"] in (BEGIN, UPDATED, SAVED)]
        if not any(event["event"] == UPDATED for event in states):
            continue
        rank = found.setdefault(states[-1]["rank"], Rank())
        rank.attempts += 1
        if rank.attempts == 1:
            for event in states:
                if event["event"] == BEGIN:
                    rank.begin = _state(event)
                elif event["event"] == SAVED:
                    if event["update"] in rank.after:
                        rank.after[event["update"]].saved.update(event["tensors"])
                else:
                    rank.after[event["update"]] = _state(event)
    return dict(sorted(found.items()))


def _state(event: Event) -> State:
    return State(event["step"], event["tensors"], event["random"], tuple(event["rates"]))


def saves(folder: Path) -> dict[int, bool]:
    """Of rank 0, by the updates done before each save: whether it was finished."""
    found: dict[int, bool] = {}
    for process in read(folder).trained:
        if not process.rank:
            for save in process.saves:
                found[save.updates] = found.get(save.updates, True) and _finished(save)
    return found


def _finished(save: SaveSeen) -> bool:
    return save.finished_ns is not None and not save.failed
