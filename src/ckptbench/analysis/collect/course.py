"""The course of a run: which steps its final state has, which were undone, and whose trace each part of its time is taken from.

Ranks may be lost and others go on, new ranks may join, and all may start again from a version. The traces of all ranks
together tell what came of each step.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ckptbench.common.errors import RunFolderError
from ckptbench.run.events import Membership
from ckptbench.run.trace import Ints, ProcessRun, Steps, Trace

FOR_EVER = 2**62


@dataclass(frozen=True, slots=True)
class Members:
    """Who trains together, and the samples of the global batch that each reads."""

    ranks: tuple[int, ...]
    first: tuple[int, ...]
    samples: tuple[int, ...]

    @classmethod
    def of(cls, membership: Membership) -> Members:
        return cls(tuple(membership.ranks), tuple(membership.first), tuple(membership.samples))

    def times_read(self, global_batch: int) -> Ints:
        """How often each sample of the global batch is read in a step, shape (global_batch,)."""
        read = np.zeros(global_batch, np.int64)
        for first, samples in zip(self.first, self.samples, strict=True):
            read[first : first + samples] += 1
        return read


class Record(NamedTuple):
    """A step that one rank has recorded. Times are in ns since 1970."""

    step: int
    start_ns: int
    end_ns: int
    rank: int
    process: int
    """Number of the rank's process, from 0."""
    members: Members


@dataclass(frozen=True, slots=True)
class StepExecution:
    """One execution of a step by the ranks that train together. A step that is done again has another execution."""

    step: int
    records: tuple[Record, ...]
    """Of each rank that has recorded it."""
    kept: bool
    """Whether the final state has it. Else it was undone, or lost with the ranks that had it."""

    @property
    def members(self) -> Members:
        return self.records[0].members


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the run's time, taken from the trace of one process of one rank. Times are in ns since 1970."""

    rank: int
    process: ProcessRun
    begin_ns: int
    """The time before it is taken from other ranks, or from an earlier process of the rank."""
    end_ns: int

    def steps(self) -> Steps:
        """Its steps in the order of time, with times in ns since 1970. A step that was done again is there twice."""
        if not self.process.blocks:
            return self.process.steps()
        own = self.process.steps()
        offset_ns = self.process.unix_ns(0)
        shifted = dataclasses.replace(
            own, start_ns=own.start_ns + offset_ns, end_ns=own.end_ns + offset_ns
        )
        return shifted.at((shifted.start_ns >= self.begin_ns) & (shifted.start_ns < self.end_ns))

    def unix_ns(self, monotonic_ns: Iterable[int]) -> list[int]:
        """Those of these moments that lie in the segment, in ns since 1970."""
        moments = [self.process.unix_ns(each) for each in monotonic_ns]
        return [each for each in moments if self.begin_ns <= each < self.end_ns]


def reference_rank(traces: Sequence[Trace]) -> int:
    """The rank whose trace tells how the run went: the first that ended and was there all the time, else the first that ended.

    Raises RunFolderError if no rank ended.
    """
    ended = [rank for rank, trace in enumerate(traces) if trace.ended]
    if not ended:
        raise RunFolderError(f'{traces[0].path.parent}: no trace closes with an "end" event')
    stayed = [
        rank for rank in ended if not any(process.joined for process in traces[rank].processes)
    ]
    return [*stayed, *ended][0]


def segments(traces: Sequence[Trace], rank: int) -> list[Segment]:
    """The run's time in order. It is taken from this rank's trace as long as the rank was there, and before that from the ranks whose state it took over."""
    told: list[Segment] = []
    end_ns = FOR_EVER
    donor: int | None = rank
    while donor is not None:
        rank, donor = donor, None
        for process in reversed(_connected(traces[rank].processes)):
            launched_ns = process.unix_ns(process.launched_ns or 0)
            if launched_ns >= end_ns:
                continue
            begin_ns = process.unix_ns(process.joined_ns) if process.joined else 0
            if begin_ns >= end_ns:
                continue
            told.append(Segment(rank, process, begin_ns, end_ns))
            if process.joined:
                donor, end_ns = _present(traces, rank, begin_ns), begin_ns
                break
            others = _last_together(traces, launched_ns)
            if others is not None and rank not in others:
                donor, end_ns = others[0], launched_ns
                break
    return told[::-1]


def _last_together(traces: Sequence[Trace], before_ns: int) -> Sequence[int] | None:
    """The ranks that trained together at last before this time; None if no event says so, and all did."""
    known = []
    for trace in traces:
        earlier = [
            process
            for process in trace.processes
            if process.start is not None and process.unix_ns(process.launched_ns or 0) < before_ns
        ]
        for process in earlier[-1:]:
            moments = [
                (process.unix_ns(membership.monotonic_ns), membership.ranks)
                for membership in process.memberships
            ]
            known += [each for each in moments if each[0] < before_ns]
    return max(known)[1] if known else None


def _connected(processes: Sequence[ProcessRun]) -> list[ProcessRun]:
    """The processes. One that was gone before it was connected is taken to have had the clock of the one before."""
    known: list[ProcessRun] = []
    for process in processes:
        before = known[-1].start if known else None
        known.append(process if process.start else dataclasses.replace(process, start=before))
    return [process for process in known if process.start is not None]


def _present(traces: Sequence[Trace], newcomer: int, at_ns: int) -> int | None:
    """A rank other than the newcomer that was training at this time: the one that goes on first afterwards."""
    found = []
    for rank, trace in enumerate(traces):
        starts_ns = [
            process.steps().start_ns + process.unix_ns(0)
            for process in trace.processes
            if process.blocks
        ]
        known = np.concatenate([np.zeros(0, np.int64), *starts_ns])
        if rank != newcomer and (known < at_ns).any():
            found.append((int(known[known >= at_ns].min(initial=FOR_EVER)), rank))
    return min(found)[1] if found else None


def records(traces: Sequence[Trace], everybody: Members) -> list[Record]:
    """Every step that any rank has recorded. `everybody` are the members while no event says otherwise."""
    return [
        record
        for rank, trace in enumerate(traces)
        for number, process in enumerate(trace.processes)
        if process.blocks
        for record in _of_process(rank, number, process, everybody)
    ]


def _of_process(
    rank: int, number: int, process: ProcessRun, everybody: Members
) -> Iterator[Record]:
    steps, offset_ns = process.steps(), process.unix_ns(0)
    since = [membership.monotonic_ns for membership in process.memberships]
    members = [everybody, *map(Members.of, process.memberships)]
    rows = zip(steps.index.tolist(), steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)
    for step, start_ns, end_ns in rows:
        own = members[bisect.bisect_right(since, start_ns)]
        yield Record(step, start_ns + offset_ns, end_ns + offset_ns, rank, number, own)


def executions(traces: Sequence[Trace], everybody: Members) -> list[StepExecution]:
    """Every execution of every step, in the order of the steps and of time.

    Raises RunFolderError if the traces do not tell how the final state came about.
    """
    known = records(traces, everybody)
    kept = set(_kept(traces, known))
    done = []
    in_order = sorted(known, key=lambda record: record[:3])
    for step, same in itertools.groupby(in_order, key=lambda record: record.step):
        for together in _together(same):
            done.append(StepExecution(step, tuple(together), not kept.isdisjoint(together)))
    return done


def kept_steps(trace: Trace, rank: int, done: Iterable[StepExecution]) -> Steps:
    """The steps of this rank that the final state has, in their order."""
    own = [
        each
        for execution in done
        if execution.kept
        for each in execution.records
        if each.rank == rank
    ]
    places: dict[int, list[int]] = {}
    for record in own:
        places.setdefault(record.process, []).append(record.start_ns)
    blocks = []
    for number, starts_ns in places.items():
        process = trace.processes[number]
        steps = process.steps()
        blocks.append(steps.at(np.isin(steps.start_ns + process.unix_ns(0), starts_ns)))
    return Steps.join(blocks)


def drop_undone(traces: Sequence[Trace], steps: Sequence[Steps], steps_per_epoch: int) -> None:
    """Take out of the traces the epochs, checkpoints and evaluations of ranks that were lost, where others did them again.

    `steps` are those that each rank has of the final state.
    """
    main = traces[reference_rank(traces)]
    for rank, (trace, own) in enumerate(zip(traces, steps, strict=True)):
        for epoch in list(trace.evaluations):
            if not _evaluates(main, rank, epoch):
                del trace.evaluations[epoch]
        if trace.ended:
            continue
        known = set(own.index.tolist())
        for epoch in [
            each for each in trace.epochs if (each + 1) * steps_per_epoch - 1 not in known
        ]:
            del trace.epochs[epoch]
        for step in [each for each in trace.checkpoints if each - 1 not in known]:
            del trace.checkpoints[step]


def _evaluates(main: Trace, rank: int, epoch: int) -> bool:
    """Whether the rank was there when the run evaluated the network after this epoch for the last time."""
    if epoch not in main.evaluations:
        return True
    at_ns = main.evaluations[epoch].start_ns
    process = next(each for each in reversed(main.processes) if each.trained_ns)
    earlier = [membership for membership in process.memberships if membership.monotonic_ns <= at_ns]
    return not earlier or rank in earlier[-1].ranks


def _together(same: Iterable[Record]) -> Iterator[list[Record]]:
    """The records of one step by its executions. Ranks that do a step together do it at the same time."""
    together: list[Record] = []
    for record in same:
        if together and record.start_ns >= max(each.end_ns for each in together):
            yield together
            together = []
        together.append(record)
    yield together


def _kept(traces: Sequence[Trace], known: Sequence[Record]) -> Iterator[Record]:
    """A record of each step of the final state, from the last step back to the first."""
    of_process: dict[tuple[int, int], list[Record]] = {}
    of_step: dict[int, list[Record]] = {}
    for record in known:
        of_process.setdefault((record.rank, record.process), []).append(record)
        of_step.setdefault(record.step, []).append(record)
    own_processes = [place for place in of_process if place[0] == reference_rank(traces)]
    last = of_process[max(own_processes)][-1]
    done = last.step + 1
    while done:
        process = traces[last.rank].processes[last.process]
        own = [each for each in of_process[last.rank, last.process] if each.end_ns <= last.end_ns]
        from_others = [at for at in _took_over(process) if at <= last.end_ns]
        while done and own and (not from_others or own[-1].end_ns > from_others[-1]):
            record = own.pop()
            if record.step == done - 1:
                done -= 1
                yield record
        if done:
            # The state came from a rank that was ahead, or from a version that was saved after this step.
            since_ns = from_others[-1] if from_others else process.unix_ns(process.launched_ns or 0)
            last = _latest(traces, of_step.get(done - 1, ()), done, since_ns)


def _took_over(process: ProcessRun) -> list[int]:
    """When the process went on with a state that it had not reached itself, in ns since 1970."""
    steps = process.steps()
    found = []
    reached, since_ns = 0, 0
    for membership in process.memberships:
        own = steps.index[(steps.start_ns >= since_ns) & (steps.start_ns < membership.monotonic_ns)]
        reached = int(own[-1]) + 1 if len(own) else reached
        if membership.step > reached:
            found.append(process.unix_ns(membership.monotonic_ns))
        reached, since_ns = membership.step, membership.monotonic_ns
    return found


def _latest(traces: Sequence[Trace], same: Iterable[Record], done: int, since_ns: int) -> Record:
    before = [record for record in same if record.end_ns <= since_ns]
    if not before:
        folder = traces[0].path.parent
        raise RunFolderError(
            f"{folder}: no trace has step {done - 1}, which the final state goes back to; remove {folder} to run the cell again"
        )
    return max(before, key=lambda record: record.end_ns)
