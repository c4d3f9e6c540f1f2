"""What a check of a resume has found: one verdict, its reasons, its exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ckptbench_probe.check.alignment import (
    Unknown,
    joined_difference,
    restored_difference,
    resumed_from,
)
from ckptbench_probe.check.causes import causes
from ckptbench_probe.check.compare import (
    Difference,
    drawn_from,
    first_difference,
    names_that_differ,
    unseeded_in,
)
from ckptbench_probe.check.extent import Extent, extent, listed
from ckptbench_probe.check.seen import Seen

SAME, DIFFERENT, CANNOT_TELL = "same", "different", "cannot tell"
EXIT_CODES = {SAME: 0, DIFFERENT: 1, CANNOT_TELL: 2}


@dataclass(frozen=True)
class Verdict:
    verdict: str
    lines: tuple[str, ...]
    """For the user, the point first."""
    resumed_from: int | None = None
    compared_until: int | None = None
    restored: Difference | None = None
    """What was different already when the run was started again."""
    first: Difference | None = None
    """The first difference after an update."""

    @property
    def code(self) -> int:
        return EXIT_CODES[self.verdict]


def cannot_tell(reason: str) -> Verdict:
    return Verdict(CANNOT_TELL, (f"cannot tell: {reason}",))


def judge(seen: Seen) -> Verdict:
    """The killed run is a second undisturbed run until it is killed, so it shows whether two such runs are the same."""
    unseeded = unseeded_in(seen.whole, seen.killed, seen.kill_at)
    unlike, _ = first_difference(seen.whole, seen.killed, ignored=unseeded, until=seen.kill_at)
    if unlike is not None:
        return _irreproducible(unlike)
    if not seen.again:
        return _without_update(seen)
    if seen.again.keys() != seen.killed.keys():
        return cannot_tell(
            f"the training had {len(seen.killed)} ranks, and {len(seen.again)} after the restart"
        )
    starts = {rank: resumed_from(seen.killed[rank], own) for rank, own in seen.again.items()}
    start = starts[0] if 0 in starts else next(iter(starts.values()))
    if isinstance(start, Unknown):
        return _unaligned(start, seen)
    if len(set(starts.values())) > 1:
        told = ", ".join(f"rank {rank} from {_told(one)}" for rank, one in starts.items())
        return Verdict(DIFFERENT, (f"DIFFERENT: the ranks resumed from different updates: {told}",))
    if start == 0:
        return _began_again(seen)
    return _compared(seen, start, unseeded)


def _told(start: int | Unknown) -> str:
    return "an unknown one" if isinstance(start, Unknown) else str(start)


def _irreproducible(unlike: Difference) -> Verdict:
    where = f"update {unlike.update} on" if unlike.update else "their begin"
    return cannot_tell(
        f"two undisturbed runs differ from {where} ({_counts(unlike)}): set the seeds, and PyTorch's deterministic algorithms, in the training"
    )


def _without_update(seen: Seen) -> Verdict:
    if seen.failure is not None:
        return Verdict(DIFFERENT, (f"does not resume: the restarted run {seen.failure}",))
    return Verdict(
        DIFFERENT,
        (
            "does not resume: the restarted run ended without an update, as if training were complete",
        ),
    )


def _unaligned(start: Unknown, seen: Seen) -> Verdict:
    if start.odd:
        line = "DIFFERENT from the resume on: the restarted training begins with a state that is neither the initial one nor that of any update before the kill"
        return Verdict(DIFFERENT, (line, *_failed(seen)))
    return cannot_tell(
        "the state at the restart matches several updates: its optimizer counts no steps"
    )


def _began_again(seen: Seen) -> Verdict:
    finished = [update for update, done in seen.saves.items() if done and update < seen.kill_at]
    if finished:
        line = f'does not resume: it started from 0, although the save of update {max(finished)} was finished. If another command resumes, name it: --resume "COMMAND"'
        return Verdict(DIFFERENT, (line, lost_work(seen.kill_at, 0)), resumed_from=0)
    begun = [update for update in seen.saves if update < seen.kill_at]
    why = (
        f"the save of update {max(begun)} had not been committed at the kill"
        if begun
        else "no save was seen before the kill"
    )
    return Verdict(
        CANNOT_TELL,
        (f"cannot tell: the training started from 0, as {why}: choose a later --kill-at",),
        resumed_from=0,
    )


def _compared(seen: Seen, start: int, unseeded: frozenset[str]) -> Verdict:
    first, last = first_difference(
        seen.whole, seen.again, start=start, ignored=unseeded, until=seen.until
    )
    restored = restored_difference(seen.killed, seen.again, start)
    if restored is None and first is not None:
        restored = joined_difference(seen.whole, seen.again, start, first.update)
    known: dict[str, Any] = {"resumed_from": start, "compared_until": last, "restored": restored}
    after = (*_lost(seen, start), *_failed(seen))
    if first is None and last <= start:
        return Verdict(
            DIFFERENT if seen.failure else CANNOT_TELL,
            (f"no update could be compared after the resume from {start}", *after),
            **known,
        )
    end = _end(seen, start)
    if first is None:
        found = extent(seen.whole, seen.again, start, last, unseeded)
        same, left = _same(seen, found, start, last), _not_compared(seen, found, last)
        if seen.failure is not None:
            line = f"does not resume to the end: {same}; after that it fails or hangs"
            return Verdict(DIFFERENT, (line, *after, *left), **known)
        if end:
            return Verdict(DIFFERENT, (f"DIFFERENT: {end}; {same}", *after, *left), **known)
        unrestored = _unrestored(seen, start, last, unseeded)
        return Verdict(SAME, (same, *after, *unrestored, *left), **known)
    if first.update > seen.kill_at:
        repeated = seen.repeat()
        if repeated.keys() != seen.whole.keys():
            return cannot_tell("a second undisturbed run did not get as far as the first one")
        unlike, _ = first_difference(seen.whole, repeated, ignored=unseeded)
        if unlike is not None:
            return _irreproducible(unlike)
    line = f"SILENTLY DIFFERENT from update {first.update} on (rank {first.rank}): {_counts(first)}; resumed from {start}"
    why = causes(seen, start, restored, first)
    return Verdict(DIFFERENT, (line, *why, *([end] if end else ()), *after), first=first, **known)


def _end(seen: Seen, start: int) -> str:
    """Where the two runs end after different numbers of updates."""
    if seen.failure is not None:
        return ""
    whole = min(max(own.after) for own in seen.whole.values())
    again = start + min(max(own.after) for own in seen.again.values())
    if seen.whole_ended and (again != whole or not seen.again_ended):
        more = "" if seen.again_ended else "more than "
        return f"ends after {more}{again} updates in place of {whole}"
    if again < whole:
        return f"ends after {again} updates, where the undisturbed run went on to update {whole}"
    return ""


def _same(seen: Seen, found: Extent, start: int, last: int) -> str:
    parts = [f"{found.tensors} tensor{'' if found.tensors == 1 else 's'} of model and optimizer"]
    parts += [f"{found.beside} beside them"] if found.beside else []
    parts += [f"{found.saved} that it saves"] if found.saved else []
    return f"same from update {start + 1} to {last}, bit by bit: {', '.join(parts)}, random states and learning rates of {_ranks(seen)}"


def _not_compared(seen: Seen, found: Extent, last: int) -> tuple[str, ...]:
    left = [*found.not_compared]
    if seen.unread:
        left.append(f"{listed(seen.unread)} (written by no engine that the probe knows)")
    if not seen.whole_ended:
        left.append(f"what comes after update {last} (--until)")
    return tuple(f"not compared: {one}" for one in left)


def _ranks(seen: Seen) -> str:
    return f"{len(seen.whole)} ranks" if len(seen.whole) > 1 else "the one rank"


def _counts(found: Difference) -> str:
    random = f"different ({', '.join(found.random)})" if found.random else "same"
    rates = "same" if found.rates is None else "different"
    beside = f", {len(found.beside)} beside them" if found.beside else ""
    saved = f", {len(found.saved)} tensors that it saves" if found.saved else ""
    return f"{len(found.tensors)} of {found.of} tensors{beside}{saved}, rng {random}, lr {rates}"


def _lost(seen: Seen, start: int) -> tuple[str, ...]:
    lines = []
    newer = {u: done for u, done in seen.saves.items() if start < u < seen.kill_at}
    if newer:
        update = max(newer)
        lines.append(
            f"the save of update {update} was finished, and was not used"
            if newer[update]
            else f"the save of update {update} was lost: it had not been committed at the kill (asynchronous)"
        )
    return (*lines, lost_work(seen.kill_at, start))


def lost_work(kill_at: int, start: int) -> str:
    lost = kill_at - start
    return f"lost work: {lost} update{'' if lost == 1 else 's'}, killed after update {kill_at}, resumed from {start}"


def _failed(seen: Seen) -> tuple[str, ...]:
    return () if seen.failure is None else (f"the restarted run {seen.failure}",)


def _unrestored(seen: Seen, start: int, last: int, unseeded: frozenset[str]) -> tuple[str, ...]:
    """Random states that differ, though nothing that depends on them has meanwhile."""
    names: set[str] = set()
    drawn: set[str] = set()
    for rank, own in seen.again.items():
        one, other = seen.whole[rank].at(last), own.at(last - start)
        if one is not None and other is not None:
            names.update(names_that_differ(one.random, other.random))
            drawn |= drawn_from(seen.whole[rank], start, last)
    texts = (
        (names & drawn, "and the training draws from it, although nothing compared differs"),
        (names - drawn, "and no update has drawn from it; a later draw would differ"),
    )
    return tuple(
        f"not restored: the random state of {', '.join(sorted(found - unseeded))}, {text}"
        for found, text in texts
        if found - unseeded
    )
