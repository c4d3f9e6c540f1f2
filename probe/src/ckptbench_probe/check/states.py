"""What the ranks of one run have written of their state, read from its folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ckptbench_probe.check.recorder import BEGIN, BETWEEN, RESTORED, SAVED, UPDATED
from ckptbench_probe.files import after_rename
from ckptbench_probe.reading import Event, read, traces

STATES_KNOWN = ("orbax", "session")
"""Kinds of saves whose state is what each update names."""
COPIED = ("moved", "copied", "duplicated", "linked")
"""Events after which a file has another name, or one more."""
KINDS = (BEGIN, UPDATED, BETWEEN, SAVED, RESTORED)


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
    later: dict[str, str] = field(default_factory=dict)
    """Of the tensors, those that had another value before the next update or at the end, as they were clamped, or put in for a save."""
    beside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Then, digests of what lives beside the model, by name."""
    ends: set[bool] = field(default_factory=set)
    """Whether these two are of the end of the process; empty where they were not seen."""
    randoms: dict[str, set[str]] = field(default_factory=dict)
    """Random states that it saved, or might have."""
    done: int = 0
    """Updates of the process, with those that were left out."""
    backwards: int = 0
    """Backward passes of the process."""
    batches: tuple[str, ...] = ()
    """Since the update before, where they are recorded."""

    @property
    def before_next(self) -> dict[str, str]:
        return {**self.tensors, **self.later}


@dataclass
class Rank:
    begin: State | None = None
    """None where it cannot be seen."""
    after: dict[int, State] = field(default_factory=dict)
    """By the number of updates that the process has made."""
    attempts: int = 0
    """Processes that were this rank."""
    restored: dict[str, set[str]] = field(default_factory=dict)
    """Random states that the program has set before its first update."""
    live: set[str] = field(default_factory=set)
    """Files that a thread has written from memory that training changes: they are not compared in that."""
    joined: dict[int, dict[str, str]] = field(default_factory=dict)
    """Of further optimizers, as the second one of a GAN: their tensors before their first step, by the updates made until then."""

    def at(self, update: int) -> State | None:
        """0: before the first."""
        return self.after.get(update) if update else self.begin


def ranks(folder: Path) -> dict[int, Rank]:
    """Of each rank, its first process that has a state."""
    found: dict[int, Rank] = {}
    for events in _processes(folder):
        rank = found.setdefault(events[-1]["rank"], Rank())
        rank.attempts += 1
        if rank.attempts == 1:
            _fill(rank, events)
    return dict(sorted(found.items()))


def _processes(folder: Path) -> Iterator[list[Event]]:
    """Of each that has updated, in the order of their begins, what it has written of its state."""
    every = (events for _, events in traces(folder))
    for events in sorted(every, key=lambda events: int(events[0]["unix_ns"])):
        states = [event for event in events if event["event"] in KINDS]
        if any(event["event"] == UPDATED for event in states):
            yield states


def _fill(rank: Rank, events: list[Event]) -> None:
    for event in events:
        kind = event["event"]
        if kind == RESTORED:
            rank.restored.setdefault(event["name"], set()).add(event["digest"])
        elif kind == BEGIN and event["update"]:
            rank.joined.setdefault(event["update"], {}).update(event["tensors"])
        elif kind == BEGIN:
            rank.begin = _state(event)
        elif kind == UPDATED:
            rank.after[event["update"]] = _state(event)
        elif kind == BETWEEN and event["update"] in rank.after:
            state = rank.after[event["update"]]
            state.later.update(event["tensors"])
            state.beside.update({name: tuple(one) for name, one in event["beside"].items()})
            state.ends.add(event["at_end"])
    for event in events:
        if event["event"] == SAVED:
            rank.live |= {event["live"]} if event.get("live") else set()
            own = event["update"] if event["stepping"] else held_by(rank, event)
            if own in rank.after:
                _add(rank.after[own].saved, event["tensors"])
                for name, value in event["random"].items():
                    rank.after[own].randoms.setdefault(name, set()).add(value)


def _add(saved: dict[str, str], tensors: dict[str, str]) -> None:
    """Files whose names have other numbers only, as those of parts, are told apart by their order."""
    for name, value in tensors.items():
        number = 1
        while saved.get(own := name if number == 1 else f"{name} ({number})", value) != value:
            number += 1
        saved[own] = value


def _state(event: Event) -> State:
    beside = {name: tuple(one) for name, one in event.get("beside", {}).items()}
    return State(
        event["step"],
        event["tensors"],
        event["random"],
        tuple(event["rates"]),
        beside=beside,
        done=int(event.get("done", 0)),
        backwards=int(event.get("backwards", 0)),
        batches=tuple(event.get("batches", ())),
    )


def held_by(rank: Rank, *saved: Event) -> int:
    """The update whose state a save holds: that which has most of its values; of several, the one at which it began, else the newest before."""
    values = {value for event in saved for value in event["tensors"].values()}
    began = int(saved[0]["update"])
    held = {update: len(values & _values(state)) for update, state in rank.after.items()}
    most = max(held.values(), default=0)
    if not most or held.get(began) == most:
        return began
    alike = [update for update, count in held.items() if count == most]
    return max((update for update in alike if update <= began), default=min(alike))


def _values(state: State) -> set[str]:
    beside = (one for values in state.beside.values() for one in values)
    return {*state.tensors.values(), *state.later.values(), *beside}


def saves(folder: Path) -> dict[int, bool]:
    """Of rank 0, by the update whose state each save holds: whether it was finished."""
    found: dict[int, bool] = {}
    own = ranks(folder).get(0, Rank())
    noted = [event for events in _processes(folder) for event in events if event["event"] == SAVED]
    for process in read(folder).trained:
        if not process.rank:
            for save in process.saves:
                given = [event for event in noted if event["save"] == save.id]
                update = held_by(own, *given) if given else _made(own, save.updates)
                finished = save.finished_ns is not None and not save.failed
                found[update] = found.get(update, True) and finished
    for event in noted:
        if event["save"] is None and event["stepping"] and not event["rank"]:
            found.setdefault(event["update"], True)
    return found


def _made(rank: Rank, done: int) -> int:
    """Updates that were made when so many were done."""
    return max((update for update, state in rank.after.items() if state.done <= done), default=done)


def paths(folder: Path) -> Iterable[str]:
    """Of all files whose content was noted, or is a state that was recorded otherwise, with the names that they were given later."""
    found: set[str] = set()
    for _, events in traces(folder):
        for event in events:
            if event["event"] == SAVED or event.get("kind") in STATES_KNOWN:
                found.add(event["path"])
            elif event["event"] in COPIED and (source := event.get("source") or event.get("to")):
                found |= {after_rename(one, source.rstrip("/"), event["path"]) for one in found}
    return found
