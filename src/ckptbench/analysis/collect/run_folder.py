"""One run folder, read and checked: a result is complete, or it is refused with what is wrong and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.errors import ConfigError
from ckptbench.machine.files import read_json
from ckptbench.matrix.catalogue import KILLED, KILLED_INSIDE
from ckptbench.matrix.cell import Cell
from ckptbench.runs.kills import RecordedKill
from ckptbench.runs.layout import KEPT_BYTES, MANIFEST, SCHEMA_VERSION, final_path, trace_path
from ckptbench.runs.seal import refused, verify_seal
from ckptbench.runs.trace import Steps, Trace, read_trace

# fmt: off
MANIFEST_FIELDS = frozenset({
    "schema_version", "cell_id", "cell", "training", "seed", "status", "attempts", "requeues", "started", "ended",
    "duration_s", "measured_on", "device", "host", "hosts", "versions", "lock_sha256", "source", "state_bytes", "kills",
    "run_id", "dataset_sha256",
})
TRAINING_FIELDS = frozenset({"seed", "warmup_steps", "keep_during_run", "proof"})
# fmt: on


@dataclass(frozen=True, slots=True)
class RankRun:
    """What one rank of a run did."""

    trace: Trace
    steps: Steps
    node: str
    """Name of its host."""


@dataclass(frozen=True, slots=True)
class Run:
    """A complete run; `ranks[i]` is rank i."""

    folder: Path
    cell: Cell
    manifest: dict[str, Any]
    ranks: list[RankRun]

    @property
    def resumed(self) -> bool:
        """Whether any attempt but the first has a share in it; its clocks are then no measurement."""
        attempts = max(self.manifest["attempts"], len(self.ranks[0].trace.starts))
        return bool(attempts > 1 or self.manifest["requeues"])

    @property
    def steps(self) -> int:
        """Of the whole run, whether recorded or lost with a killed attempt."""
        return int(self.ranks[0].steps.index[-1]) + 1

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
    def final_arrays(self) -> list[Path]:
        """One file a rank, of a run with a proof whose tensors are few enough to be kept."""
        state = self.manifest["state_bytes"]
        kept = self.proof and state["model"] + state["optimizer"] <= KEPT_BYTES
        ranks = range(self.cell.ranks) if kept else ()
        return [final_path(self.folder, rank) for rank in ranks]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises RunFolderError where the folder is not a complete, unchanged result."""
        sealed = set(verify_seal(folder))
        manifest = _read_manifest(folder / MANIFEST)
        cell = _cell(folder, manifest)
        paths = [trace_path(folder, rank) for rank in range(cell.ranks)]
        _check_sealed((folder / MANIFEST, *paths), sealed)
        traces = [read_trace(path) for path in paths]
        nodes = zip(traces, manifest["hosts"], strict=True)
        ranks = [RankRun(trace, trace.steps(), node) for trace, node in nodes]
        run = cls(folder, cell, manifest, ranks)
        _check_sealed(run.final_arrays, sealed)
        _check(run)
        _check_kills(run)
        _check_digests(run)
        return run


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest = read_json(path)
    missing = sorted(MANIFEST_FIELDS - manifest.keys())
    if not missing:
        if not isinstance(manifest["training"], dict):
            raise refused(path, f"training is {manifest['training']!r}, not a section")
        training = manifest["training"].keys()
        missing = [f"training.{name}" for name in sorted(TRAINING_FIELDS - training)]
    if missing:
        raise refused(path, f"lacks {', '.join(missing)}")
    if manifest["schema_version"] != SCHEMA_VERSION:
        raise refused(path, f"schema_version is {manifest['schema_version']}, not {SCHEMA_VERSION}")
    if manifest["status"] != "complete":
        raise refused(path, f'status is "{manifest["status"]}", not "complete"')
    return manifest


def _cell(folder: Path, manifest: dict[str, Any]) -> Cell:
    path = folder / MANIFEST
    try:
        cell = Cell.from_json(manifest["cell"])
    except (ConfigError, KeyError, TypeError) as error:
        raise refused(path, f"cell is none of this version: {error}") from error
    if cell.id != manifest["cell_id"]:
        raise refused(path, f"cell_id is {manifest['cell_id']}, its cell is {cell.id}")
    if len(hosts := manifest["hosts"]) != cell.ranks:
        raise refused(path, f"hosts names {len(hosts)} machines, its cell has {cell.ranks} ranks")
    return cell


def _check_sealed(paths: Iterable[Path], sealed: set[Path]) -> None:
    for path in paths:
        if path not in sealed:
            raise refused(path, "is not in the seal")


def _check(run: Run) -> None:
    """Every rank did every step, epoch and checkpoint of the cell, and ended."""
    between = run.cell.interval.steps(run.steps_per_epoch)
    due = range(between, run.steps + 1, between) if between else range(0)
    for rank, part in enumerate(run.ranks):
        trace = part.trace
        if not trace.ended:
            raise refused(trace.path, 'does not close with an "end" event')
        if [start.rank for start in trace.starts[-1:]] != [rank]:
            raise refused(trace.path, f'has no "start" event of rank {rank}')
        _check_all(trace.path, "epoch", range(run.cell.epochs), trace.epochs)
        if not run.resumed:  # what a killed attempt had not written yet is in no trace
            _check_all(trace.path, "step", range(run.steps), part.steps.index.tolist())
            saved = [step for step, each in trace.checkpoints.items() if each.save is not None]
            _check_all(trace.path, "checkpoint", due, saved, event="save")
    for step in run.ranks[0].trace.checkpoints:
        if not any(_committed(part.trace, step) for part in run.ranks):
            raise refused(run.ranks[0].trace.path, f"checkpoint {step} was committed by no rank")


def _committed(trace: Trace, step: int) -> bool:
    checkpoint = trace.checkpoints.get(step)
    return checkpoint is not None and bool(checkpoint.durable)


def _check_kills(run: Run) -> None:
    """The run was killed as its history asks, and its ranks and its launcher agree on when."""
    kills = [_kill(run, kill) for kill in run.manifest["kills"]]
    attempts = run.manifest["attempts"]
    if len(kills) != (wanted := KILLED.get(run.cell.history, 0)) or attempts <= wanted:
        raise refused(
            run.folder / MANIFEST,
            f"was killed {len(kills)} times in {attempts} attempts, its history asks for {wanted}",
        )
    inside = sum(kill.inside is not None for kill in kills)
    if inside != (asked := KILLED_INSIDE.get(run.cell.history, 0)):
        raise refused(
            run.folder / MANIFEST,
            f"{inside} of {len(kills)} kills came inside a checkpoint, its history asks for {asked}",
        )
    recorded = [
        RecordedKill.of(attempt, rank, kill)
        for rank, part in enumerate(run.ranks)
        for attempt, kill in part.trace.kills
    ]
    if set(kills) != set(recorded):
        raise refused(
            run.folder / MANIFEST,
            f"kills are {sorted(map(str, kills))}, the traces say {sorted(map(str, recorded))}",
        )


def _kill(run: Run, content: dict[str, Any]) -> RecordedKill:
    try:
        return RecordedKill.from_json(content)
    except TypeError as error:
        raise refused(run.folder / MANIFEST, f"kills hold {content!r}: {error}") from error


def _check_digests(run: Run) -> None:
    """Every rank of a proof left a digest after every epoch and at the end."""
    for part in run.ranks if run.proof else ():
        digests = [digest for _, digest in part.trace.digests]
        of_epochs = {digest.epoch for digest in digests if digest.when == "epoch"}
        _check_all(part.trace.path, "digest", range(run.cell.epochs), sorted(of_epochs))
        if not any(digest.when == "end" for digest in digests):
            raise refused(part.trace.path, 'has no "digest" event for the end')


def _check_all(
    path: Path, what: str, expected: Iterable[int], found: Iterable[int], event: str | None = None
) -> None:
    expected, found = list(expected), list(found)
    if expected == found:
        return
    expected_set, found_set = set(expected), set(found)
    if missing := sorted(expected_set - found_set):
        raise refused(path, f'has no "{event or what}" event for {what} {missing[0]}')
    if extra := sorted(found_set - expected_set):
        raise refused(path, f"holds {what} {extra[0]}, which is none of this cell")
