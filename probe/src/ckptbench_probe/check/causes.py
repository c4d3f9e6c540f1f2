"""Why a resumed training is different: what is known of it, else what it may be."""

from __future__ import annotations

from collections.abc import Iterator

from ckptbench_probe.check.compare import Difference, beside_that_differ, sides
from ckptbench_probe.check.extent import listed
from ckptbench_probe.check.seen import Seen
from ckptbench_probe.check.state import SLOT

GUESSED = "perhaps missing"
DECIDES = "the place in an accumulation, or what decides whether an update is made"
ASK = "a guess: run the check again with --data, which compares the batches too, to know"


def causes(
    seen: Seen, start: int, restored: Difference | None, first: Difference
) -> tuple[str, ...]:
    """What comes earlier may be the reason of what comes later, so it is told first. What is guessed is said to be."""
    found = [*_known(seen, start, restored, first)]
    if not found:
        found = [*_unknown(seen, first)]
    if any(line.startswith(GUESSED) for line in found) and not seen.data:
        found.append(ASK)
    return tuple(found)


def _known(seen: Seen, start: int, restored: Difference | None, first: Difference) -> Iterator[str]:
    updates = _updates_left_out(seen, start, first)
    beside = () if updates else _beside_at_begin(seen, start, first)
    if updates:
        yield f"missing: the state of the scaler, or what else decides whether an update is made: the resumed run left out {updates}"
    if restored is not None:
        yield f"missing: the restored state is already different at the resume: {_parts(restored)}"
    if beside:
        yield f"missing: what lives beside the model is already different at the resume: {listed(beside)}"
    batches = "" if updates else _batches(seen, start, first)
    if batches:
        yield f"missing: {batches}"
    elif not updates:
        yield from _passes(seen, start, first)
    for name in first.random:
        if not (batches and _is_restored(seen, start, first, name)):
            yield _random(seen, start, first, name)
    if first.rates is not None:
        one, other = (", ".join(f"{rate:g}" for rate in sorted(set(r))) for r in first.rates)
        yield f"missing: the learning rate, of a scheduler or of the optimizer's groups: {other} instead of {one}"
    if not first.tensors and (first.saved or first.beside) and not beside:
        what = (
            "what lives beside the model, or what decides how it is updated, as its count"
            if first.beside
            else "what the program saves beside its model"
        )
        yield f"missing: {what}: {listed(first.beside or first.saved)}"


def _unknown(seen: Seen, first: Difference) -> Iterator[str]:
    begin = seen.again[first.rank].begin
    if begin is not None and begin.tensors.keys().isdisjoint(first.tensors):
        # As buffers, which the model fills before the first update.
        yield f"missing: {listed(first.tensors)}, or what it is made from: the probe sees it only after an update"
    elif any(own.begin is None for own in seen.again.values()):
        yield f"unknown what is missing, as the state at the resume was not seen; these differ: {listed(first.tensors)}"
    elif _is_recorded(seen, first):
        yield f"{GUESSED}: gradients of an accumulation, or an option of the optimizer: batches, restored state, random states and learning rates are the same"
    else:
        yield f"{GUESSED}: the order of the data, or a random generator of the program's own, or gradients of an accumulation, or an option of the optimizer: the restored state, random states and learning rates are the same"


def _parts(found: Difference) -> str:
    slots = [name for name in found.tensors if SLOT in name]
    kinds = {0: "none a slot of the optimizer", len(found.tensors): "all slots of the optimizer"}
    return f"{len(found.tensors)} of {found.of} tensors, {kinds.get(len(slots), f'{len(slots)} of them slots of the optimizer')} ({listed(found.tensors)})"


def _beside_at_begin(seen: Seen, start: int, first: Difference) -> tuple[str, ...]:
    """Of what is different beside the model, what was so before the first update."""
    both = sides(seen.killed[first.rank], seen.again[first.rank], start)
    if start not in both.one or start not in both.other:
        return ()
    different = beside_that_differ(both.one[start], both.other[start])
    return tuple(name for name in first.beside if name in different)


def _updates_left_out(seen: Seen, start: int, first: Difference) -> str:
    whole, again = seen.whole[first.rank], seen.again[first.rank]
    one, other = whole.at(first.update), again.at(first.update - start)
    before = whole.at(start)
    if one is None or other is None or before is None:
        return ""
    usual = one.done - first.update - (before.done - start if start else 0)
    more = other.done - (first.update - start) - usual
    if not more:
        return ""
    number = "1 update" if abs(more) == 1 else f"{abs(more)} updates"
    return f"{number} {'more' if more > 0 else 'less'} than the undisturbed one"


def _passes(seen: Seen, start: int, first: Difference) -> Iterator[str]:
    """Backward passes since the resume."""
    whole, again = seen.whole[first.rank], seen.again[first.rank]
    one, other, before = whole.at(first.update), again.at(first.update - start), whole.at(start)
    if one is None or other is None or before is None:
        return
    usual = one.backwards - before.backwards
    if other.backwards > usual:
        yield f"missing: {DECIDES}: {other.backwards} backward passes from the resume to update {first.update}, where the undisturbed run makes {usual}"


def _batches(seen: Seen, start: int, first: Difference) -> str:
    """Of the first update that was given others."""
    whole, again = seen.whole[first.rank], seen.again[first.rank]
    for update in range(start + 1, first.update + 1):
        one, other = whole.at(update), again.at(update - start)
        if one is None or other is None or one.batches == other.batches:
            continue
        if one.batches and one.batches == other.batches[: len(one.batches)]:
            return f"{DECIDES}: {len(other.batches)} batches for update {update}, where the undisturbed run takes {len(one.batches)}"
        of = next((n for n, state in whole.after.items() if state.batches == other.batches), None)
        whose = "not those of the undisturbed run" if of is None else f"those of update {of}"
        return f"the place in the data: the model gets other batches in update {update}: {whose}"
    return ""


def _random(seen: Seen, start: int, first: Difference, name: str) -> str:
    if not _is_restored(seen, start, first, name):
        return f"missing: the random state of {name}"
    since = "was restored, but draws since then differ, perhaps by a new iterator of a data loader"
    if _is_recorded(seen, first):
        return f"missing: the random state of {name} at the first update: it {since}, though the batches are the same: restore it once more when the iterator is made"
    return f"{GUESSED}: the place in the data: the random state of {name} {since}: restore its order, and skip the batches that are done"


def _is_restored(seen: Seen, start: int, first: Difference, name: str) -> bool:
    """Whether the program has set it, before its first update, to what it was at the update resumed from."""
    saved = seen.killed[first.rank].at(start)
    known = set() if saved is None else {*saved.randoms.get(name, ()), saved.random.get(name, "")}
    return bool(known & seen.again[first.rank].restored.get(name, set()))


def _is_recorded(seen: Seen, first: Difference) -> bool:
    return any(state.batches for state in seen.whole[first.rank].after.values())
