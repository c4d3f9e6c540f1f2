"""One run folder, read and checked: a result is complete, or it is refused with what is wrong and where.

Of a run in which ranks were lost and others went on, those that were there at the end did every step between them.
The trace of a rank that was lost goes as far as the rank came.
"""

from __future__ import annotations

import traceback
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.analysis.collect.course import (
    Members,
    Segment,
    StepExecution,
    drop_undone,
    executions,
    kept_steps,
    reference_rank,
    segments,
)
from ckptbench.common.errors import ConfigError, RunFolderError
from ckptbench.common.files import read_json
from ckptbench.matrix.cell import Cell
from ckptbench.run.events import Lost
from ckptbench.run.layout import (
    KEPT_BYTES,
    LAUNCHER_TRACE,
    MANIFEST,
    SCHEMA_VERSION,
    final_path,
    trace_path,
)
from ckptbench.run.seal import refused, verify_seal
from ckptbench.run.trace import Steps, Trace, read_trace, whole_events


@dataclass(frozen=True, slots=True)
class RankRun:
    """What one rank of a run did."""

    trace: Trace
    steps: Steps
    node: str
    """Name of its host."""


@dataclass(frozen=True, slots=True)
class Run:
    """A complete run; `ranks[i]` is rank i.

    If ranks were lost or joined, `ranks` holds only work that is in the final state; undone steps, epochs, evaluations
    and checkpoints are left out.
    """

    folder: Path
    cell: Cell
    manifest: dict[str, Any]
    ranks: list[RankRun]
    segments: list[Segment]
    """Its time in order, each part with the rank whose trace it is taken from."""
    executions: list[StepExecution] | None
    """Every execution of every step; None for a run that no failure struck."""

    @property
    def traces(self) -> list[Trace]:
        return [part.trace for part in self.ranks]

    @property
    def survivors(self) -> list[int]:
        """The ranks that were there at the end: all, unless others went on without a rank that was lost."""
        return [rank for rank, trace in enumerate(self.traces) if trace.ended]

    @property
    def reference_rank(self) -> RankRun:
        """The rank that tells how the run went: rank 0, unless it was lost or replaced while others went on."""
        return self.ranks[self.segments[-1].rank]

    @property
    def regrouped(self) -> bool:
        """Whether ranks went on without others, or others joined them."""
        return any(trace.regroups for trace in self.traces)

    @property
    def resumed(self) -> bool:
        """Whether the run had a second attempt or was requeued. Then its times are not used."""
        attempts = max(self.manifest["attempts"], len(self.reference_rank.trace.starts))
        return bool(attempts > 1 or self.manifest["requeues"])

    @property
    def interrupted(self) -> bool:
        """Whether training did not go through from the first step to the last with the same ranks."""
        return self.resumed or self.regrouped

    @property
    def steps(self) -> int:
        """Of the whole run, whether recorded or lost with a killed attempt."""
        return int(self.reference_rank.steps.index[-1]) + 1

    @property
    def steps_per_epoch(self) -> int:
        return self.steps // self.cell.epochs

    @property
    def warmup_steps(self) -> int:
        return int(self.manifest["training"]["warmup_steps"])

    @property
    def first_checkpoints(self) -> int:
        """How many checkpoints the run wrote before it was in the steady state.

        The disk then holds `keep_during_run` versions and the next one, and no version was removed before. Every later
        checkpoint can be written to the blocks of a version that the run has removed.
        """
        return int(self.manifest["training"]["keep_during_run"]) + 1

    @property
    def proof(self) -> bool:
        """Whether it recorded digests of its whole state after every epoch, and kept all tensors of the end."""
        return bool(self.manifest["training"]["proof"])

    @property
    def final_arrays(self) -> dict[int, Path]:
        """By each rank that was there at the end, of a run with a proof whose tensors are few enough to be kept."""
        state = self.manifest["state_bytes"]
        kept = self.proof and state["model"] + state["optimizer"] <= KEPT_BYTES
        return {rank: final_path(self.folder, rank) for rank in self.survivors if kept}

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises RunFolderError where the folder is not a complete, unchanged result."""
        with consistent_files(folder):
            return cls._read(folder)

    @classmethod
    def _read(cls, folder: Path) -> Self:
        sealed = set(verify_seal(folder))
        manifest = _manifest(folder / MANIFEST)
        cell = _cell(folder, manifest)
        paths = [trace_path(folder, rank) for rank in range(cell.ranks)]
        _check_sealed((folder / MANIFEST, *paths), sealed)
        traces = [read_trace(path) for path in paths]
        _check_ends(traces, folder, cell)
        done = executions(traces, everybody(cell)) if cell.is_struck else None
        told = segments(traces, reference_rank(traces))
        ranks = [
            RankRun(trace, steps, node)
            for trace, steps, node in zip(
                traces, _steps(traces, cell, done), manifest["hosts"], strict=True
            )
        ]
        run = cls(folder, cell, manifest, ranks, told, done)
        _check_sealed(run.final_arrays.values(), sealed)
        _check(run)
        _check_proof(run)
        return run


INCONSISTENT = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    OSError,
    zipfile.BadZipFile,
)
"""What code raises that is given values of the right types which do not go together."""


@contextmanager
def consistent_files(folder: Path) -> Iterator[None]:
    """Turn errors from inconsistent files into a RunFolderError that names the run folder."""
    try:
        yield
    except INCONSISTENT as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise RunFolderError(
            f"{folder}: its files do not go together ({type(error).__name__} in {Path(where.filename).name}, {where.name}: "
            f"{error!s:.200}); remove {folder} to run the cell again"
        ) from error


def _manifest(path: Path) -> dict[str, Any]:
    """Raises RunFolderError where it is not that of a complete run of this version."""
    manifest = read_json(path)
    for name, wanted in (("schema_version", SCHEMA_VERSION), ("status", "complete")):
        if (found := manifest.get(name)) != wanted:
            raise refused(path, f"{name} is {found!r}, not {wanted!r}")
    return manifest


def _cell(folder: Path, manifest: dict[str, Any]) -> Cell:
    path = folder / MANIFEST
    try:
        return Cell.from_json(manifest["cell"])
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise refused(path, f"cell is not of this version: {error}") from error


def _check_sealed(paths: Iterable[Path], sealed: set[Path]) -> None:
    for path in paths:
        if path not in sealed:
            raise refused(path, "is not in the seal")


def everybody(cell: Cell) -> Members:
    """The members while all ranks of the cell train together."""
    ranks, size = range(cell.ranks), cell.batch_size
    return Members(tuple(ranks), tuple(rank * size for rank in ranks), (size,) * cell.ranks)


def _steps(
    traces: Sequence[Trace], cell: Cell, done: Sequence[StepExecution] | None
) -> list[Steps]:
    """The steps of each rank. Where ranks went on without others, those that the final state has."""
    if done is None or not any(trace.regroups for trace in traces):
        return [trace.steps() for trace in traces]
    steps = [kept_steps(trace, rank, done) for rank, trace in enumerate(traces)]
    drop_undone(traces, steps, (1 + max(execution.step for execution in done)) // cell.epochs)
    return steps


def _check_ends(traces: Sequence[Trace], folder: Path, cell: Cell) -> None:
    """Every rank started, and ended, but for those that others went on without."""
    left_out: set[int] = set()
    if cell.is_struck and any(trace.ended for trace in traces):
        main = traces[reference_rank(traces)]
        last = main.memberships[-1].ranks if main.memberships else range(cell.ranks)
        left_out = set(range(cell.ranks)) - set(last)
        # A rank that is lost after the last step is missed by no other.
        for event in whole_events(folder / LAUNCHER_TRACE):
            left_out |= set(event.ranks) if isinstance(event, Lost) else set()
    for rank, trace in enumerate(traces):
        if not trace.ended and rank not in left_out:
            raise refused(trace.path, 'does not close with an "end" event')
        if trace.ended and [start.rank for start in trace.starts[-1:]] != [rank]:
            raise refused(trace.path, f'has no "start" event of rank {rank}')
        if any(process.blocks and process.start is None for process in trace.processes):
            raise refused(trace.path, 'has steps of a process without a "start" event')


def _check(run: Run) -> None:
    """Every rank of a run that was not interrupted did every step, epoch and checkpoint of the cell."""
    if run.interrupted:  # what a killed attempt had not written yet is in no trace
        return
    between = run.cell.interval.steps(run.steps_per_epoch)
    due = range(between, run.steps + 1, between) if between else range(0)
    for rank in run.survivors:
        trace = run.traces[rank]
        saved = [step for step, each in trace.checkpoints.items() if each.save is not None]
        _check_all(trace.path, "epoch", range(run.cell.epochs), trace.epochs)
        _check_all(trace.path, "step", range(run.steps), run.ranks[rank].steps.index.tolist())
        _check_all(trace.path, "checkpoint", due, saved)


def _check_proof(run: Run) -> None:
    """There are digests of the end, and every kill was followed by a restart from a version."""
    for rank in run.survivors if run.proof else ():
        trace = run.traces[rank]
        if not any(digest.when == "end" for _, digest in trace.digests):
            raise refused(trace.path, 'has no "digest" event for the end')
    if run.cell.is_killed:
        loaded = {attempt for attempt, phase in run.traces[0].phases if phase.name == "load"}
        if missing := {strike["attempt"] + 1 for strike in run.manifest["strikes"]} - loaded:
            words = f'has no "load" phase in the attempts {sorted(missing)}'
            raise refused(run.traces[0].path, words)


def _check_all(path: Path, what: str, expected: Iterable[int], found: Iterable[int]) -> None:
    if missing := sorted({*expected} - {*found}):
        raise refused(path, f"has no {what} {missing[0]}")
    if extra := sorted({*found} - {*expected}):
        raise refused(path, f"holds {what} {extra[0]}, which does not belong to this cell")
