"""Compare the states of runs, bit by bit, at the same updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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
    beside: tuple[str, ...] = ()
    """What lives beside the model in both, and differs."""

    @property
    def state(self) -> bool:
        return bool(self.tensors or self.saved or self.beside) or self.rates is not None


def names_that_differ(one: dict[str, str], other: dict[str, str]) -> tuple[str, ...]:
    names = {**one, **other}
    return tuple(name for name in names if one.get(name) != other.get(name))


def saved_that_differ(one: State, other: State) -> set[str]:
    return {name for name in one.saved.keys() & other.saved if one.saved[name] != other.saved[name]}


def beside_that_differ(one: State, other: State) -> set[str]:
    """Several tensors may have one name: a run may have more of them, as it still has the checkpoint that it has loaded."""
    return {
        name
        for name in one.beside.keys() & other.beside
        if not (
            set(one.beside[name]) <= set(other.beside[name])
            or set(other.beside[name]) <= set(one.beside[name])
        )
    }


def _tensors_that_differ(one: State, other: State) -> tuple[str, ...]:
    """After the update, or before the next one."""
    names = dict.fromkeys(names_that_differ(one.tensors, other.tensors))
    if one.ends and one.ends == other.ends:
        first, second = one.before_next, other.before_next
        names.update(dict.fromkeys(n for n in first if second.get(n, first[n]) != first[n]))
    return tuple(names)


def difference_at(
    update: int,
    rank: int,
    one: State,
    other: State,
    *,
    drawn: Iterable[str] = (),
    ignored: frozenset[str] = frozenset(),
    beside: Iterable[str] = (),
) -> Difference | None:
    """`drawn`: random states that count. `beside`: what counts of that."""
    random = names_that_differ(one.random, other.random)
    beside = beside_that_differ(one, other) & set(beside) if one.ends == other.ends else set()
    found = Difference(
        update,
        rank,
        _tensors_that_differ(one, other),
        len({**one.tensors, **other.tensors}),
        tuple(name for name in random if name in drawn),
        None if one.rates == other.rates else (one.rates, other.rates),
        tuple(sorted(saved_that_differ(one, other) - ignored)),
        tuple(sorted(beside - ignored)),
    )
    return found if found.state or found.random else None


def last_of_both(one: Ranks, other: Ranks, start: int) -> int:
    """The last update that all ranks have in both runs."""
    last = min(max(one[rank].after) for rank in one)
    return min([last, *(start + max(other[rank].after) for rank in one)])


def first_difference(
    one: Ranks,
    other: Ranks,
    *,
    start: int = 0,
    ignored: frozenset[str] = frozenset(),
    until: int | None = None,
) -> tuple[Difference | None, int]:
    """Of the earliest update at which any rank differs, that of its first rank; and the last update that is compared.

    `start`: the update of `one` after which `other` begins; at 0, their begins are compared too. `ignored`: random states, and names of what is saved or lives beside.
    """
    last = last_of_both(one, other, start)
    last = last if until is None else min(last, until)
    for update in range(start, last + 1):
        for rank in one:
            first, second = one[rank].at(update), other[rank].at(update - start)
            if first is None or second is None or (update == start and start > 0):
                continue
            if update == start + 1:
                first = _as_far_as(first, second)
            drawn = drawn_from(one[rank], start, update) - ignored
            both = moved(one[rank], start, update) & moved(other[rank], 0, update - start)
            found = difference_at(
                update, rank, first, second, drawn=drawn, ignored=ignored, beside=both
            )
            if found is not None:
                return found, last
    return _left_behind(one, other, start, last, ignored), last


def _left_behind(
    one: Ranks, other: Ranks, start: int, last: int, ignored: frozenset[str]
) -> Difference | None:
    """What lives beside the model, and is updated in one run only, as it was lost: by the last update it may still have become the same."""
    for rank in one:
        either = moved(one[rank], start, last) | moved(other[rank], 0, last - start)
        seen: set[str] = set()
        for update in range(last, start, -1):
            first, second = one[rank].at(update), other[rank].at(update - start)
            if first is None or second is None or first.ends != second.ends:
                continue
            new = (first.beside.keys() & second.beside) - seen
            seen |= new
            names = beside_that_differ(first, second) & new & either - ignored
            if names:
                return Difference(
                    update, rank, (), len(first.tensors), (), None, (), tuple(sorted(names))
                )
    return None


def moved(rank: Rank, start: int, end: int) -> set[str]:
    """What lives beside the model and has changed from one update to another."""
    seen: dict[str, set[tuple[str, ...]]] = {}
    for update in range(start, end + 1):
        state = rank.at(update)
        for name, values in (state.beside if state else {}).items():
            seen.setdefault(name, set()).add(values)
    return {name for name, values in seen.items() if len(values) > 1}


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
    """Random states, and what is saved or lives beside the model, that differ at any update of two undisturbed runs: the program does not seed them."""
    names: set[str] = set()
    for rank in one.keys() & other.keys():
        for update in range(until + 1):
            first, second = one[rank].at(update), other[rank].at(update)
            if first is not None and second is not None:
                names.update(names_that_differ(first.random, second.random))
                names.update(saved_that_differ(first, second))
                names.update(beside_that_differ(first, second))
    return frozenset(names)
