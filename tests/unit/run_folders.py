"""Run folders whose every time is known: written as a run writes them, with a clock that the test sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptbench.cells import NO_FORMAT, Cell, Interval
from ckptbench.manifest import MANIFEST, SCHEMA_VERSION, seal, trace_path, write_json
from ckptbench.plan import Training
from ckptbench.recorder import Recorder

TRAINING = Training(
    seed=1,
    learning_rate=0.1,
    momentum=0.9,
    weight_decay=0.0,
    steps_per_epoch=None,
    test_samples=None,
    warmup_steps=0,
    keep_during_run=1,
)
HOST = {
    "host": "node1",
    "kernel": "6.1",
    "cpu": "AMD EPYC",
    "cores": 2,
    "memory_bytes": 2**34,
    "gpus": [],
    "checkpoint_file_system": "ext4",
    "scheduler_job": None,
}
SHARES = {
    "written_ns": 0.5,
    "synced_ns": 0.6875,
    "checked_ns": 0.75,
    "durable_ns": 0.875,
    "retained_ns": 0.9375,
}
"""When the parts of a checkpoint end, as shares of its stall; the last sixteenth is waiting."""

ByRankAndStep = Callable[[int, int], float]


def cell(interval: str = "e1", **fields: Any) -> Cell:
    """A cell of PyTorch with two epochs on one rank, but for what is given."""
    defaults = {"framework": "pytorch", "model": "resnet50", "dataset": "digits", "ranks": 1}
    size = {"batch_size": 8, "epochs": 2}
    format = NO_FORMAT if interval == "never" else "torch_save"
    return Cell(
        **{**defaults, **size, "format": format, "interval": Interval.parse(interval), **fields}
    )


@dataclass(frozen=True, kw_only=True)
class FakeRun:
    """A run on a clock of its own. Durations are in seconds."""

    cell: Cell
    steps_per_epoch: int = 10
    warmup_steps: int = 0
    step_s: ByRankAndStep = lambda rank, step: 0.1
    stall_s: ByRankAndStep = lambda rank, step: 0.5
    durable_s: float | None = None
    """From the start of the save; None for the share of the stall."""
    loss: ByRankAndStep = lambda rank, step: 1.0
    files: dict[str, int] = field(default_factory=lambda: {"model.pt": 1000, "rank-0.npz": 24})
    evaluates: bool = True
    attempts: int = 1
    manifest: dict[str, Any] = field(default_factory=dict)
    """Fields to put in the place of the usual ones."""

    def write(self, runs: Path) -> Path:
        """Write and seal `runs/<cell id>`; returns it."""
        folder = runs / self.cell.id
        folder.mkdir(parents=True)
        for rank in range(self.cell.ranks):
            _Rank(self, rank, Recorder(trace_path(folder, rank))).run()
        write_json(folder / MANIFEST, {**self._usual_manifest(), **self.manifest})
        seal(folder, self.cell.ranks)
        return folder

    def _usual_manifest(self) -> dict[str, Any]:
        training = dataclasses.replace(TRAINING, warmup_steps=self.warmup_steps)
        return {
            "schema_version": SCHEMA_VERSION,
            "cell_id": self.cell.id,
            "cell": self.cell.to_json(),
            "training": dataclasses.asdict(training),
            "seed": 1 + self.cell.repeat,
            "status": "complete",
            "attempts": self.attempts,
            "requeues": 0,
            "hosts": ["node1"] * self.cell.ranks,
            "started": "2026-01-02T03:04:05.000+00:00",
            "ended": "2026-01-02T03:05:05.000+00:00",
            "duration_s": 60.0,
            "error": None,
            "measured_on": "cpu",
            "device": "cpu",
            "host": HOST,
            "versions": {"numpy": "2.0.0"},
            "lock_sha256": "0" * 64,
            "source": {"revision": "a" * 40, "dirty": False},
            "state_bytes": {"model": 600, "optimizer": 300, "rest": 100},
        }


class _Rank:
    """Writes the trace of one rank, attempt after attempt."""

    def __init__(self, run: FakeRun, rank: int, recorder: Recorder) -> None:
        self._run, self._rank, self._recorder = run, rank, recorder
        self._now_ns = 10**12 * (1 + rank)  # ranks may be on different hosts: no clock is shared

    def run(self) -> None:
        for attempt in range(1, self._run.attempts + 1):
            self._start(attempt)
            for epoch in range(attempt - 1, self._run.cell.epochs):
                self._epoch(epoch)
        self._recorder.event("end", monotonic_ns=self._now_ns)
        self._recorder.close()

    def _start(self, attempt: int) -> None:
        for name in ("launch", "import"):
            self._recorder.phase(name, *self._pass(2.0))
        self._recorder.event("start", attempt=attempt, rank=self._rank)
        self._recorder.phase("build", *self._pass(1.0))

    def _epoch(self, epoch: int) -> None:
        run, start_ns = self._run, self._now_ns
        for step in range(epoch * run.steps_per_epoch, (epoch + 1) * run.steps_per_epoch):
            loss = run.loss(self._rank, step)
            self._recorder.step(step, *self._pass(run.step_s(self._rank, step)), loss)
            if run.cell.interval.due(steps_done=step + 1, steps_per_epoch=run.steps_per_epoch):
                self._checkpoint(epoch, step + 1)
        self._recorder.write_steps(epoch)
        self._event("epoch", (start_ns, self._now_ns), epoch=epoch, samples=80)
        if run.evaluates:
            tests = {"samples": 10, "loss_sum": 20.0 + self._rank, "correct": 4 + self._rank}
            self._event("evaluation", self._pass(7.0), epoch=epoch, **tests)

    def _checkpoint(self, epoch: int, step: int) -> None:
        start_ns, end_ns = window = self._pass(self._run.stall_s(self._rank, step))
        scale_ns = float(end_ns - start_ns)
        if self._run.durable_s is not None:
            scale_ns = self._run.durable_s * 1e9 / SHARES["durable_ns"]
        written: dict[str, Any] = {}
        if self._rank == 0:
            written = {name: start_ns + round(share * scale_ns) for name, share in SHARES.items()}
            written["files"] = self._run.files
        self._event("checkpoint", window, epoch=epoch, step=step, **written)

    def _event(self, name: str, window: tuple[int, int], **fields: Any) -> None:
        self._recorder.event(name, start_ns=window[0], end_ns=window[1], **fields)

    def _pass(self, seconds: float) -> tuple[int, int]:
        """Let time go by; returns when it began and ended, ns."""
        start_ns = self._now_ns
        self._now_ns += round(seconds * 1e9)
        return start_ns, self._now_ns
