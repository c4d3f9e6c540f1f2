"""Compare the states of runs, bit by bit, at the same updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ckptbench_probe.check.state import SLOT
from ckptbench_probe.check.states import Rank, State

Ranks = dict[int, Rank]


@dataclass(frozen=True)
class Difference:
    """Of one rank at one update."""

    update: int
    rank: int
    tensors: tuple[str, ...]
    """Those that differ, or that only one of the two has."""
    of: int
    """Tensors in all."""
    random: tuple[str, ...]
    """Random states that differ and that the training draws from."""
    rates: tuple[tuple[float, ...], tuple[float, ...]] | None
    """Of the first and of the second, where they differ."""

    saved: tuple[str, ...] = ()
    """What both have saved there, and differs, by file and name."""

    @property
    def state(self) -> bool:
        return bool(self.tensors or self.saved) or self.rates is not None


def names_that_differ(one: dict[str, str], other: dict[str, str]) -> tuple[str, ...]:
    names = {**one, **other}
    return tuple(name for name in names if one.get(name) != other.get(name))


def saved_that_differ(one: State, other: State) -> set[str]:
    return {name for name in one.saved.keys() & other.saved if one.saved[name] != other.saved[name]}


def difference_at(
    update: int,
    rank: int,
    one: State,
    other: State,
    *,
    drawn: Iterable[str] = (),
    ignored: frozenset[str] = frozenset(),
) -> Difference | None:
    """`drawn`: random states that count."""
    random = names_that_differ(one.random, other.random)
    found = Difference(
        update,
        rank,
        names_that_differ(one.tensors, other.tensors),
        len({**one.tensors, **other.tensors}),
        tuple(name for name in random if name in drawn),
        None if one.rates == other.rates else (one.rates, other.rates),
        tuple(sorted(saved_that_differ(one, other) - ignored)),
    )
    return found if found.state or found.random else None


def first_difference(
    one: Ranks,
    other: Ranks,
    *,
    start: int = 0,
    ignored: frozenset[str] = frozenset(),
    until: int | None = None,
) -> tuple[Difference | None, int]:
    """Of the earliest update at which any rank differs, that of its first rank; and the last update that all ranks have in both runs.

    `start`: the update of `one` after which `other` begins; at 0, their begins are compared too. `ignored`: random states, and names of what is saved.
    """
    last = min(max(one[rank].after) for rank in one)
    last = min([last, *(start + max(other[rank].after) for rank in one)])
    last = last if until is None else min(last, until)
    for update in range(start, last + 1):
        for rank in one:
            first, second = one[rank].at(update), other[rank].at(update - start)
            if first is None or second is None or (update == start and start > 0):
                continue
            if update == start + 1:
                first = _as_far_as(first, second)
            drawn = drawn_from(one[rank], start, update) - ignored
            found = difference_at(update, rank, first, second, drawn=drawn, ignored=ignored)
            if found is not None:
                return found, last
    return None, last


def _as_far_as(state: State, seen: State) -> State:
    """What the other state shows too: optimizers that had not made their first step there, as the second one of a GAN, are not seen in it."""
    if len(state.rates) <= len(seen.rates):
        return state
    tensors = {name: value for name, value in state.tensors.items() if name in seen.tensors}
    return replace(state, tensors=tensors, rates=state.rates[: len(seen.rates)])


def drawn_from(rank: Rank, start: int, end: int) -> set[str]:
    """Random states that have changed from one update to another."""
    seen: dict[str, set[str]] = {}
    for update in range(start, end + 1):
        state = rank.at(update)
        for name, value in (state.random if state else {}).items():
            seen.setdefault(name, set()).add(value)
    return {name for name, values in seen.items() if len(values) > 1}


def unseeded_in(one: Ranks, other: Ranks, until: int) -> frozenset[str]:
    """Random states, and what is saved, that differ at any update of two undisturbed runs: the program does not seed them."""
    names: set[str] = set()
    for rank in one.keys() & other.keys():
        for update in range(until + 1):
            first, second = one[rank].at(update), other[rank].at(update)
            if first is not None and second is not None:
                names.update(names_that_differ(first.random, second.random))
                names.update(saved_that_differ(first, second))
    return frozenset(names)


@dataclass(frozen=True)
class Unknown:
    """Why the update that a run has resumed from cannot be told."""

    odd: bool
    """Whether its state is that of no update at all, rather than that of several."""


def resumed_from(killed: Rank, again: Rank) -> int | Unknown:
    """The update of the killed run whose state this run began with. 0: the killed run's own begin.

    By the number of updates that the state itself has, as AdamW's slot `step`; without it, by the update that has most of its tensors.
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
    shared = {
        update: sum(state.tensors.get(name) == value for name, value in own.tensors.items())
        for update, state in states.items()
    }
    most = max(shared.values(), default=0)
    if most == 0:
        return Unknown(odd=True)
    best = [update for update, count in shared.items() if count == most]
    if len(best) > 1:
        best = [update for update in best if _restored(states[update], own) == own.tensors]
    return best[0] if len(best) == 1 else Unknown(odd=False)


def _restored(saved: State, own: State) -> dict[str, str]:
    """Those tensors of a saved state that belong to the parameters of a state that was restored: the begin has only the first optimizer's."""
    parameters = {name.partition(SLOT)[0] for name in own.tensors}
    return {
        name: value
        for name, value in saved.tensors.items()
        if name.partition(SLOT)[0] in parameters
    }


def restored_difference(killed: Ranks, again: Ranks, start: int) -> Difference | None:
    """Between the state that each rank began with and that of the killed run at the update resumed from, as far as the first optimizer has it."""
    for rank, own in again.items():
        saved = killed[rank].at(start)
        if own.begin is None or saved is None:
            continue
        tensors = _restored(saved, own.begin)
        names = names_that_differ(tensors, own.begin.tensors)
        if names:
            return Difference(start, rank, names, len({**tensors, **own.begin.tensors}), (), None)
    return None
