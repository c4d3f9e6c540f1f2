"""Compare what another number of ranks has restored with the state that the killed ranks had together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ckptbench_probe.check.alignment import restored_difference, resumed_from
from ckptbench_probe.check.compare import Ranks
from ckptbench_probe.check.extent import listed
from ckptbench_probe.check.parts import gathered
from ckptbench_probe.check.states import Rank, State
from ckptbench_probe.check.verdict import DIFFERENT, SAME, Verdict, cannot_tell, lost_work
from ckptbench_probe.words import counted

PLACE = "{ranks}"
NOT_COMPARED = "buffers, random states, learning rates, the place in the data, and what comes after the first update"


@dataclass(frozen=True)
class Resharded:
    """The runs, and what is known of the kill."""

    killed: Ranks
    again: Ranks
    ranks: int
    """As many as the first command was to start."""
    resume_ranks: int
    kill_at: int
    saves: dict[int, bool]
    """As of `Seen`."""
    failure: str | None


def judge(seen: Resharded) -> Verdict:
    on = counted(seen.resume_ranks, "rank")
    if not seen.again:
        why = seen.failure or "ended without an update, as if training were complete"
        return Verdict(DIFFERENT, (f"does not resume on {on}: the restarted run {why}",))
    for found, wanted in ((seen.killed, seen.ranks), (seen.again, seen.resume_ranks)):
        if len(found) != wanted:
            return cannot_tell(f"{counted(len(found), 'rank')} of {wanted} made an update: write {PLACE} where the command names their number")  # fmt: skip
    before, after = together(seen.killed), together(seen.again)
    start = resumed_from(before, after)
    if not isinstance(start, int):
        line = f"on {on} it begins with a state that is that of no update before the kill"
        return Verdict(DIFFERENT, (f"DIFFERENT: {line}",)) if start.odd else cannot_tell(
            "the state at the restart matches several updates: its optimizer counts no steps"
        )  # fmt: skip
    if not start:
        finished = [update for update, done in seen.saves.items() if done and update < seen.kill_at]
        if not finished:
            return cannot_tell("the training started from 0, as no save was finished before the kill: choose a later --kill-at")  # fmt: skip
        line = f"does not resume on {on}: it started from 0, although the save of update {max(finished)} was finished"
        return Verdict(DIFFERENT, (line, lost_work(seen.kill_at, 0)), resumed_from=0)
    return _compared(seen, before, after, start, on)


def _compared(seen: Resharded, before: Rank, after: Rank, start: int, on: str) -> Verdict:
    own, saved = after.begin, before.at(start)
    if own is None or saved is None:
        return cannot_tell("the state before the first update cannot be seen in this framework")
    parameters = {name for name in own.tensors if name in saved.tensors}
    missing = _split(seen.killed, start) | _split(seen.again, 0)
    found = restored_difference({0: before}, {0: after}, start)
    more = (lost_work(seen.kill_at, start), *_not_compared(missing))
    if found is not None:
        names = [name for name in found.tensors if name not in missing]
        if names:
            line = f"DIFFERENT on {on}: {len(names)} of {found.of} tensors are not those of update {start} on {seen.ranks}: {listed(names)}"
            return Verdict(DIFFERENT, (line, *more), resumed_from=start, restored=found)
    if not parameters:
        return cannot_tell("no tensor could be gathered from the ranks' parts")
    line = f"same on {on} as on {seen.ranks}, bit by bit, at the resume from update {start}: {counted(len(parameters), 'tensor')} of model and optimizer, gathered from their parts"
    return Verdict(SAME, (line, *more), resumed_from=start, compared_until=start)


def _not_compared(missing: set[str]) -> tuple[str, ...]:
    alone = (f"not compared: {listed(sorted(missing))} (not alike on all ranks)",) if missing else ()  # fmt: skip
    return (*alone, f"not compared: {NOT_COMPARED}")


def together(ranks: Ranks) -> Rank:
    """One rank that has what all have. Tensors that cannot be gathered are left out."""
    own = list(ranks.values())
    begins = [one.begin for one in own]
    updates = set.intersection(*(set(one.after) for one in own))
    begin = None if None in begins else _merged([one for one in begins if one is not None])
    return Rank(begin, {n: _merged([one.after[n] for one in own]) for n in sorted(updates)})


def _merged(states: list[State]) -> State:
    names = dict.fromkeys(name for state in states for name in state.tensors)
    return replace(
        states[0],
        tensors=_gathered(names, [state.tensors for state in states]),
        later=_gathered(names, [state.before_next for state in states]),
        saved={},
    )


def _gathered(names: dict[str, None], every: list[dict[str, str]]) -> dict[str, str]:
    found = {name: gathered([one[name] for one in every if name in one]) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _split(ranks: Ranks, update: int) -> set[str]:
    """Names of tensors that cannot be gathered there."""
    states = [one.at(update) for one in ranks.values()]
    every = [state.tensors for state in states if state is not None]
    names = dict.fromkeys(name for one in every for name in one)
    return names.keys() - _gathered(names, every).keys()
