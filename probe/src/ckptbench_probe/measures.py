"""What the checkpoints of a run cost, out of its traces.

A **checkpoint** is all saves that begin between the same two updates, of all ranks. Its **stall** is the time that they blocked the thread
that steps, on the slowest rank. Its **slowdown** is what the gaps between updates that touch the time from its begin until it was
finished are longer than quiet gaps, less the stall. A gap is **quiet** if no save is under way in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ckptbench_probe.reading import ProbedProcess, ProbedRun, ProbedSave
from ckptbench_probe.statistics import Seconds, seconds
from ckptbench_probe.storage import LEFT_NODE, UPLOADED, WRITTEN_BACK

NS = 1e9
SEEN = {WRITTEN_BACK, LEFT_NODE, UPLOADED}
"""What is said of files whose time on storage was seen."""
TICK_NS = 10_000_000
"""The kernel counts the time of a process's birth in parts of so long."""
FIRST_GAPS = 3
"""Gaps at the start of a process that count for no step time: compilation, allocation, caches."""


@dataclass(frozen=True)
class Checkpoint:
    """Seconds; None where it was not seen."""

    attempt: int
    updates: int
    """Done before it."""
    start_ns: int
    kinds: tuple[str, ...]
    paths: tuple[str, ...]
    stall_s: float
    slowdown_s: float | None
    gaps: int
    """Between updates, that it touches on its first rank; 0 where `slowdown_s` is not known."""
    finished_s: float | None
    clean_s: float | None
    clean: str
    """`written back`, `left this node`, `uploaded`, or why that was not seen."""
    file_system: str
    bytes: dict[str, int]
    """Of tensors, by type, over all ranks."""
    files: int
    size: int
    memory_bytes: int
    """Above what the process had when the save began; of the rank with most."""
    failed: bool
    cut_off: bool
    """The process ended in the call: how long it would have blocked is not known."""
    background: bool
    """Whether it went on after the call had returned, or off the thread that steps."""


@dataclass(frozen=True)
class Measures:
    """Of one run."""

    ranks: int
    attempts: int
    updates: int
    skipped: int
    backwards_per_update: float
    step_s: Seconds | None
    """Quiet gaps between updates."""
    run_s: float
    """From the first update to the last event, over all attempts."""
    start_s: float | None
    """From the start of a process to its first update; of the slowest rank."""
    checkpoints: tuple[Checkpoint, ...]
    interval_steps: float | None
    stall: Seconds | None
    slowdown: Seconds | None
    finished: Seconds | None
    clean: Seconds | None
    share: float | None
    """Of the run, that stalls and slowdown took."""
    state: dict[str, dict[str, int]]
    """Bytes that the whole state must have."""
    killed: int
    """Ranks whose trace has no end."""
    other_saves: int
    """By processes that never update."""


def measure(run: ProbedRun) -> Measures:
    attempts = attempts_of(run)
    checkpoints = [
        one for number, ranks in enumerate(attempts) for one in _checkpoints(number, ranks)
    ]
    whole = [one for one in checkpoints if not one.failed]
    quiet = [gap for ranks in attempts for gap in quiet_gaps_s(ranks[0])]
    slowdown = [one.slowdown_s for one in whole if one.slowdown_s is not None]
    run_s = sum(_length_s(ranks) for ranks in attempts)
    lost_s = sum(one.stall_s for one in checkpoints) + max(sum(slowdown), 0.0)
    firsts = [ranks[0] for ranks in attempts]
    updates = sum(len(one.updates_ns) for one in firsts)
    return Measures(
        ranks=max((len(ranks) for ranks in attempts), default=0),
        attempts=len(attempts),
        updates=updates,
        skipped=sum(len(one.skipped) for one in firsts),
        backwards_per_update=sum(one.backwards for one in firsts)
        / max(sum(one.counted for one in firsts), 1),
        step_s=seconds(quiet),
        run_s=run_s,
        start_s=_start_s(run.trained),
        checkpoints=tuple(checkpoints),
        interval_steps=_interval(checkpoints),
        stall=seconds([one.stall_s for one in whole if not one.cut_off]),
        slowdown=seconds(slowdown),
        finished=seconds([one.finished_s for one in whole if one.finished_s is not None]),
        clean=seconds([one.clean_s for one in whole if one.clean_s is not None]),
        share=lost_s / run_s if run_s > 0 and checkpoints else None,
        state=next((one.state for one in run.trained if one.state), {}),
        killed=sum(one.ended_ns is None for one in run.trained),
        other_saves=sum(len(one.saves) for one in run.processes if not one.updates_ns),
    )


def attempts_of(run: ProbedRun) -> list[list[ProbedProcess]]:
    """The ranks of each start of the training. Ranks that lived at the same time belong together: one that was born after all before it had their last event is of the next.

    That event may lie before the end, as what a killed process has not written is lost.
    """
    found: list[list[ProbedProcess]] = []
    last_ns = 0
    for one in sorted(run.trained, key=lambda one: one.updates_ns[0]):
        # The time of birth is rounded down, and of a host that has slept it may be later than it was.
        born_ns = min(one.began_ns, (one.born_ns or one.began_ns) + TICK_NS)
        if not found or born_ns > last_ns or any(_comes_after(one, other) for other in found[-1]):
            found.append([])
        found[-1].append(one)
        last_ns = max(last_ns, _last_ns(one))
    return [sorted(group, key=lambda one: (one.rank or 0, one.pid)) for group in found]


def _comes_after(one: ProbedProcess, other: ProbedProcess) -> bool:
    """Whether a launcher has started the rank once more, or a process has replaced itself by `exec`."""
    if (one.host, one.pid, one.born_ns) == (other.host, other.pid, other.born_ns):
        return True
    return one.rank == other.rank and one.restarts > other.restarts


def _last_ns(process: ProbedProcess) -> int:
    ends = [save.finished_ns or save.end_ns or save.start_ns for save in process.saves]
    return max([process.updates_ns[-1], *ends])


def _length_s(ranks: Sequence[ProbedProcess]) -> float:
    return max(_last_ns(one) - one.updates_ns[0] for one in ranks) / NS


def _start_s(ranks: Sequence[ProbedProcess]) -> float | None:
    return max(
        ((one.updates_ns[0] - one.born_ns) / NS for one in ranks if one.born_ns is not None),
        default=None,
    )


def _window(process: ProbedProcess, save: ProbedSave) -> tuple[int, int]:
    """While it is under way. One without an end goes on to the last update."""
    return save.start_ns, save.finished_ns or max(process.updates_ns[-1], save.end_ns or 0)


def _gaps(process: ProbedProcess) -> list[tuple[int, int]]:
    return list(zip(process.updates_ns, process.updates_ns[1:]))


def quiet_gaps_s(process: ProbedProcess) -> list[float]:
    """Seconds of each gap in which no save of this process is under way. Those at the start count only where there are no others."""
    windows = sorted(_window(process, save) for save in process.saves)
    found: list[float] = []
    late: list[float] = []
    place = 0
    reach = 0
    for number, (before, after) in enumerate(_gaps(process)):
        while place < len(windows) and windows[place][0] < after:
            reach = max(reach, windows[place][1])
            place += 1
        if reach <= before:
            found.append((after - before) / NS)
            if number >= FIRST_GAPS:
                late.append(found[-1])
    return late or found


def _checkpoints(attempt: int, ranks: Sequence[ProbedProcess]) -> list[Checkpoint]:
    groups: dict[int, list[tuple[ProbedProcess, ProbedSave]]] = defaultdict(list)
    for process in ranks:
        for save in process.saves:
            groups[save.updates].append((process, save))
    quiet = {id(process): quiet_gaps_s(process) for process in ranks}
    typical = {key: median(gaps) for key, gaps in quiet.items() if gaps}
    return [_checkpoint(attempt, updates, groups[updates], typical) for updates in sorted(groups)]


def _checkpoint(
    attempt: int,
    updates: int,
    members: Sequence[tuple[ProbedProcess, ProbedSave]],
    quiet_s: dict[int, float],
) -> Checkpoint:
    saves = [save for _, save in members]
    by_rank: dict[int, list[ProbedSave]] = defaultdict(list)
    for process, save in members:
        by_rank[id(process)].append(save)
    owners = {id(process): process for process, _ in members}
    stall_s = max(_stall_s(own) for own in by_rank.values())
    touched = {
        key: _touching_s(owners[key], own)
        for key, own in by_rank.items()
        if key in quiet_s and _goes_on(owners[key], own)
    }
    excess = [sum(gap - quiet_s[key] for gap in gaps) for key, gaps in touched.items()]
    start = min(save.start_ns for save in saves)
    finished = [save.finished_ns for save in saves]
    sizes: dict[str, int] = defaultdict(int)
    for save in saves:
        for name, size in save.bytes.items():
            sizes[name] += size
    clean, clean_ns = _clean(saves)
    return Checkpoint(
        attempt=attempt,
        updates=updates,
        start_ns=start,
        kinds=tuple(sorted({save.kind for save in saves})),
        paths=tuple(dict.fromkeys(process.last_name(save) for process, save in members)),
        stall_s=stall_s,
        slowdown_s=median(excess) - stall_s if excess else None,
        gaps=len(next(iter(touched.values()), [])),
        finished_s=None if None in finished else (max(one for one in finished if one) - start) / NS,
        clean_s=None if clean_ns is None else (clean_ns - start) / NS,
        clean=clean,
        file_system=next((save.file_system for save in saves if save.file_system), ""),
        bytes=dict(sizes),
        files=sum(save.files for save in saves),
        size=sum(save.size for save in saves),
        memory_bytes=max(save.memory_bytes for save in saves),
        failed=any(save.failed for save in saves),
        cut_off=any(save.end_ns is None for save in saves),
        background=any(
            not save.stepping or (save.finished_ns or 0) > (save.end_ns or 0) for save in saves
        ),
    )


def _stall_s(saves: Sequence[ProbedSave]) -> float:
    """Saves of one rank, of which none lies in another."""
    return sum(
        (save.end_ns - save.start_ns) / NS for save in saves if save.stepping and save.end_ns
    )


def _goes_on(process: ProbedProcess, saves: Sequence[ProbedSave]) -> bool:
    """Whether an update follows, and one was before: without, it is not known how long the gap is that holds the stall."""
    ends = [save.end_ns or save.start_ns for save in saves if save.stepping] or [saves[0].start_ns]
    return process.updates_ns[0] < saves[0].start_ns and process.updates_ns[-1] > max(ends)


def _touching_s(process: ProbedProcess, saves: Sequence[ProbedSave]) -> list[float]:
    """Seconds of the gaps that touch the saves. A gap that two checkpoints touch counts for the one that it begins before."""
    begin = min(_window(process, save)[0] for save in saves)
    end = max(_window(process, save)[1] for save in saves)
    later = [save.start_ns for save in process.saves if save.start_ns > begin and save not in saves]
    next_ns = min(later, default=None)
    return [
        (after - before) / NS
        for before, after in _gaps(process)
        if after > begin and before < end and not (next_ns is not None and after > next_ns)
    ]


def _clean(saves: Sequence[ProbedSave]) -> tuple[str, int | None]:
    """When the last file was clean, if that was seen of all that wrote some; else the first reason why not."""
    states = [(save.clean or "not before the process was killed", save.clean_ns) for save in saves]
    told = [(state, at) for state, at in states if state != "gone"] or states
    words = {state for state, _ in told}
    if len(words) == 1 and words <= SEEN:
        return told[0][0], max(at for _, at in told if at is not None)
    return next(state for state in sorted(words) if state not in SEEN), None


def _interval(checkpoints: Sequence[Checkpoint]) -> float | None:
    gaps = [
        after.updates - before.updates
        for before, after in zip(checkpoints, checkpoints[1:])
        if after.attempt == before.attempt
    ]
    if gaps:
        return float(median(gaps))
    return float(checkpoints[0].updates) if checkpoints and checkpoints[0].updates else None
