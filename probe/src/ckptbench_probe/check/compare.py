"""Compare the states of runs, bit by bit, at the same updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ckptbench_probe.check.states import Rank, State

Ranks = dict[int, Rank]
Beside = dict[str, set[str]]
"""Digests of what lives beside the model, by name."""


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


def beside_that_differ(one: Beside, other: Beside) -> set[str]:
    """Several tensors may have one name, and one of the runs may have more of them."""
    return {
        name
        for name in one.keys() & other.keys()
        if not (one[name] <= other[name] or other[name] <= one[name])
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
    """`drawn`: random states that count; where nothing else differs, what was drawn did not matter. `beside`: what differs of that."""
    random = names_that_differ(one.random, other.random)
    found = Difference(
        update,
        rank,
        _tensors_that_differ(one, other),
        len({**one.tensors, **other.tensors}),
        tuple(name for name in random if name in drawn),
        None if one.rates == other.rates else (one.rates, other.rates),
        tuple(sorted(saved_that_differ(one, other) - ignored)),
        tuple(sorted(set(beside) - ignored)),
    )
    return found if found.state else None


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
    beside = {rank: sides(one[rank], other[rank], start) for rank in one}
    for update in range(start, last + 1):
        for rank in one:
            first, second = one[rank].at(update), other[rank].at(update - start)
            if first is None or second is None or (update == start and start > 0):
                continue
            if update == start + 1:
                first = _as_far_as(first, second)
            drawn = drawn_from(one[rank], start, update) - ignored
            found = difference_at(
                update,
                rank,
                first,
                second,
                drawn=drawn,
                ignored=ignored,
                beside=beside[rank].different(update, both=True),
            )
            if found is not None:
                return found, last
    return _left_behind(one, beside, start, last, ignored), last


def _left_behind(
    one: Ranks, beside: dict[int, Sides], start: int, last: int, ignored: frozenset[str]
) -> Difference | None:
    """What lives beside the model, and is updated in one run only, as it was lost: by the last update it may still have become the same."""
    for rank, both in beside.items():
        seen: set[str] = set()
        for update in range(last, start, -1):
            first = one[rank].at(update)
            names = both.different(update, until=last) - seen - ignored
            seen |= both.compared(update)
            if names and first is not None:
                of = len(first.tensors)
                return Difference(update, rank, (), of, (), None, (), tuple(sorted(names)))
    return None


@dataclass(frozen=True)
class Sides:
    """What lives beside the model in two runs. Updates are those of the first."""

    one: dict[int, Beside]
    other: dict[int, Beside]
    comparable: frozenset[int]
    """Updates of which both were seen at the same moment."""

    def compared(self, update: int) -> set[str]:
        if update not in self.comparable:
            return set()
        return self.one[update].keys() & self.other[update].keys()

    def moved(self, until: int, *, both: bool = False) -> set[str]:
        """What has changed since the resume, in either run or in both."""
        first, second = _moved(self.one, until), _moved(self.other, until)
        return first & second if both else first | second

    def still(self, until: int) -> set[str]:
        """What differs, and has not changed."""
        names = (
            beside_that_differ(self.one[update], self.other[update])
            for update in self.comparable
            if update <= until
        )
        return set().union(*names) - self.moved(until)

    def different(self, update: int, *, until: int | None = None, both: bool = False) -> set[str]:
        """Of what has changed: what has not may be what a save left there."""
        if update not in self.comparable:
            return set()
        names = beside_that_differ(self.one[update], self.other[update])
        return names & self.moved(update if until is None else until, both=both)


def sides(one: Rank, other: Rank, start: int) -> Sides:
    first = {n: state for n, state in _states(one) if n >= start}
    second = {n + start: state for n, state in _states(other)}
    comparable = {n for n in first.keys() & second.keys() if first[n].ends == second[n].ends}
    if start:
        comparable.discard(start)
    return Sides(_own(first), _own(second), frozenset(comparable))


def _states(rank: Rank) -> Iterable[tuple[int, State]]:
    if rank.begin is not None:
        yield 0, rank.begin
    yield from rank.after.items()


def _own(states: dict[int, State]) -> dict[int, Beside]:
    """Where several tensors have one name, without those that do not change meanwhile, as a checkpoint that was loaded and is still there."""
    return {
        update: {
            name: set(one) - _still(states, update, name) or set(one)
            for name, one in state.beside.items()
        }
        for update, state in states.items()
    }


def _still(states: dict[int, State], update: int, name: str) -> set[str]:
    around = [states[n].beside.get(name) for n in (update - 1, update + 1) if n in states]
    values = [set(one) for one in around if one is not None]
    return set.intersection(*values) if values else set()


def _moved(states: dict[int, Beside], until: int) -> set[str]:
    seen: dict[str, list[set[str]]] = {}
    for update, beside in states.items():
        for name, values in beside.items() if update <= until else ():
            seen.setdefault(name, []).append(values)
    return {name for name, values in seen.items() if any(one != values[0] for one in values)}


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
        both = sides(one[rank], other[rank], 0)
        for update in range(until + 1):
            if update in both.comparable:
                names |= beside_that_differ(both.one[update], both.other[update])
            first, second = one[rank].at(update), other[rank].at(update)
            if first is not None and second is not None:
                names.update(names_that_differ(first.random, second.random))
                names.update(saved_that_differ(first, second))
    return frozenset(names)
