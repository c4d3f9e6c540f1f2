"""Which update of the killed run a resumed one began with, and what was different there already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ckptbench_probe.check.compare import Difference, Ranks, names_that_differ
from ckptbench_probe.check.state import SLOT
from ckptbench_probe.check.states import Rank, State


@dataclass(frozen=True)
class Unknown:
    """Why the update that a run has resumed from cannot be told."""

    odd: bool
    """Whether its state is that of no update at all, rather than that of several."""


def resumed_from(killed: Rank, again: Rank) -> int | Unknown:
    """The update of the killed run whose state this run began with. 0: the killed run's own begin.

    By the number of updates that the state itself has, as AdamW's slot `step`; without it, by the update that has most of its tensors:
    after it, before the next one, or in what was saved between the two.
    """
    if again.begin is None:
        return _by_first_update(killed, again)
    if again.begin.step:
        counted = _of_step(killed, again.begin.step)
        if counted is not None:
            return counted
    return _best(dict(_states(killed)), again.begin)


def _by_first_update(killed: Rank, again: Rank) -> int | Unknown:
    """Where the state before the first update cannot be seen."""
    first = again.after[min(again.after)]
    if first.step is None:
        found = _best(killed.after, first)
        return found if isinstance(found, Unknown) else found - 1
    if first.step == killed.after[min(killed.after)].step:
        return 0
    before = _of_step(killed, first.step - 1)
    return Unknown(odd=True) if before is None else before


def _states(rank: Rank) -> Iterable[tuple[int, State]]:
    if rank.begin is not None:
        yield 0, rank.begin
    yield from rank.after.items()


def _of_step(killed: Rank, step: int) -> int | None:
    return next((update for update, state in killed.after.items() if state.step == step), None)


def _best(states: dict[int, State], own: State) -> int | Unknown:
    """Where several have as many of its tensors, the one that has no others."""
    shared = {update: _shared(state, own) for update, state in states.items()}
    most = max(shared.values(), default=0)
    if most == 0:
        return Unknown(odd=True)
    best = [update for update, count in shared.items() if count == most]
    if len(best) > 1:
        best = [update for update in best if own.tensors in list(_candidates(states[update], own))]
    return best[0] if len(best) == 1 else Unknown(odd=False)


def _shared(state: State, own: State) -> int:
    saved = set(state.saved.values())
    counts = [
        sum(tensors.get(name) == value for name, value in own.tensors.items())
        for tensors in (state.tensors, state.before_next)
    ]
    return max(*counts, sum(value in saved for value in own.tensors.values()))


def _candidates(saved: State, own: State) -> Iterator[dict[str, str]]:
    """Weights may change between two updates."""
    for tensors in (saved.tensors, saved.before_next):
        yield _of_the_same(tensors, own.tensors)


def _of_the_same(tensors: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Those that belong to the parameters of a state that was restored: it has only those of one optimizer."""
    parameters = {name.partition(SLOT)[0] for name in own}
    return {n: value for n, value in tensors.items() if n.partition(SLOT)[0] in parameters}


def restored_difference(killed: Ranks, again: Ranks, start: int) -> Difference | None:
    """Between the state that each rank began with and that of the killed run at the update resumed from, as far as the first optimizer has it."""
    for rank, own in again.items():
        saved = killed[rank].at(start)
        if own.begin is None or saved is None:
            continue
        found = [
            (names_that_differ(tensors, own.begin.tensors), len({**tensors, **own.begin.tensors}))
            for tensors in _candidates(saved, own.begin)
        ]
        names, of = min(found, key=lambda one: len(one[0]))
        if names:
            return Difference(start, rank, names, of, (), None)
    return None


def joined_difference(whole: Ranks, again: Ranks, start: int, until: int) -> Difference | None:
    """The same of further optimizers, whose first step comes later: until an update, before which nothing else was different."""
    for rank, own in again.items():
        for update, tensors in own.joined.items():
            saved = whole[rank].at(start + update)
            if saved is None or start + update > until:
                continue
            known = _of_the_same(saved.tensors, tensors)
            names = names_that_differ(known, tensors)
            if names and known:
                return Difference(start + update, rank, names, len({**known, **tensors}), (), None)
    return None
