"""Whether a training that was started again began with the whole state of an update."""

from __future__ import annotations

from ckptbench_probe.check.alignment import Unknown, restored_difference, resumed_from
from ckptbench_probe.check.compare import Ranks
from ckptbench_probe.check.runs import Ended


def start_of(before: Ranks, after: Ranks) -> int | Unknown | None:
    """The update that the training was resumed from; None where it made no update."""
    starts = {rank: resumed_from(before[rank], own) for rank, own in after.items() if rank in before}  # fmt: skip
    different = len(set(starts.values())) > 1
    return Unknown(odd=True) if different else next(iter(starts.values()), None)


def broken(before: Ranks, after: Ranks, start: int | Unknown | None, again: Ended) -> str:
    """Why what was restored is no whole update; empty where it is."""
    if start is None:
        return f"it {again.reason()}" if again.failed else "it ended without an update"
    if isinstance(start, Unknown):
        return "its state is that of no update" if start.odd else ""
    found = restored_difference(before, after, start) if start else None
    if found is None:
        return ""
    return f"{len(found.tensors)} of {found.of} tensors are not those of update {start}"
