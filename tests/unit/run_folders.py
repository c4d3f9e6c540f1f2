"""Run folders whose every time is known: written as a run writes them, with a clock that the test sets."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.files import write_json
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.levels import SHARED
from ckptbench.matrix.registry import NO_FORMAT
from ckptbench.matrix.training import Training
from ckptbench.run.events import (
    Begun,
    Captured,
    Counted,
    Digest,
    Durable,
    End,
    Epoch,
    Evaluation,
    File,
    Hold,
    Memory,
    MemoryMoment,
    Pause,
    Phase,
    Retained,
    Save,
    Start,
    Strike,
    Struck,
    Written,
)
from ckptbench.run.failure import Failure
from ckptbench.run.layout import (
    KEPT_BYTES,
    LAUNCHER_TRACE,
    MANIFEST,
    SCHEMA_VERSION,
    final_path,
    strikes_path,
    trace_path,
)
from ckptbench.run.recorder import Recorder
from ckptbench.run.seal import seal
from ckptbench.training.digest import digests

TRAINING = Training(
    seed=1,
    learning_rate=0.1,
    momentum=0.9,
    weight_decay=0.0,
    steps_per_epoch=None,
    test_samples=None,
    warmup_steps=0,
    keep_during_run=99,
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
    "written": 0.5,
    "synced": 0.6875,
    "checked": 0.75,
    "committed": 0.875,
}
"""When the parts of a checkpoint end, as shares of its stall; the last eighth is waiting."""

ByRankAndStep = Callable[[int, int], float]
Arrays = dict[str, NDArray[Any]]


class Moment(NamedTuple):
    """When a digest is taken; `step` is the number of completed steps."""

    when: str
    rank: int
    step: int
    attempt: int
    level: str | None = None
    """Of a version."""


class Kill(NamedTuple):
    rank: int
    step: int
    inside: str | None = None

    @property
    def failure(self) -> Failure:
        return Failure(
            step=self.step,
            moment="save" if self.inside else "step",
            stage=self.inside,
            rank=self.rank,
        )


def trained(moment: Moment) -> Arrays:
    """A state of one tensor a group that depends on the step alone, as that of a deterministic run does."""
    step = moment.step
    return {
        "model/dense.kernel": np.array([1.0, 1.0 + step], np.float32),
        "model/norm.mean": np.array([0.5 + step], np.float32),
        "optimizer/dense.kernel": np.array([0.0, 2.0 * step], np.float32),
        "optimizer/steps": np.array(step, np.int64),
        "random/python/words": np.array([step, 7], np.uint64),
        "seed/0": np.array([step, 0], np.uint32),
        "buffer/norm.running_mean": np.array([0.5 + step + moment.rank], np.float32),
        "position/data": np.array([step, 0], np.int64),
    }


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
    keep: int = TRAINING.keep_during_run
    removal_s: float = 0.0
    """From the end of the stall, behind the next steps; 0 for no removal."""
    hold_s: dict[str, float] = field(default_factory=dict)
    """Seconds of rank 0's waits after each save, by their reason; they are outside all steps."""
    loss: ByRankAndStep = lambda rank, step: 1.0
    files: dict[str, int] = field(
        default_factory=lambda: {"model.pt": 1000, "rank-0.safetensors": 24}
    )
    evaluates: bool = True
    attempts: int = 1
    """Each begins one epoch later than the one before, but for those of a killed run."""
    kills: tuple[Kill, ...] = ()
    """Each ends an attempt; the next goes on from the last checkpoint before it."""
    proof: bool = False
    memory: Callable[[str, int, int], int] = lambda when, rank, step: 1000
    """Bytes at a sample, by its moment, rank and step."""
    peak: Callable[[str, int, int], int] = lambda when, rank, step: 0
    """The high-water mark of a sample above its bytes."""
    gpu_peak: int | None = None
    """What the framework has allocated of a GPU at most, in the sample after each epoch."""
    written_after: bool = False
    """The last save is written, and memory is looked at, when training has ended."""
    threads: int = 1
    """Threads, and processes, at every sample."""
    levels: tuple[str, ...] = ("shared",)
    """Every version lies at each of them that `takes` it."""
    takes: Callable[[str, int], bool] = lambda level, step: True
    lag_s: float = 0.0
    """By which each level is written and committed later than the nearer one."""
    is_spread: bool = False
    """Whether each rank is on a node of its own, and commits all files to the levels of the node."""
    pause_s: float = 0.0
    """Before each save, in a proof."""
    state: Callable[[Moment], Arrays] = trained
    load_s: Callable[[int, int], float] = lambda rank, attempt: 3.0
    read_bytes: int | None = 0
    """What each rank has fetched from storage during a load."""
    model_bytes: int = 600
    manifest: dict[str, Any] = field(default_factory=dict)
    """Fields to put in the place of the usual ones."""
    counted: tuple[Counted, ...] = ()
    """Counters of the launcher's machine. An earlier version had none."""

    def write(self, runs: Path) -> Path:
        """Write and seal `runs/<cell id>`; returns it."""
        folder = runs / self.cell.id
        folder.mkdir(parents=True)
        for rank in range(self.cell.ranks):
            _Rank(self, rank, folder).run()
        write_json(folder / MANIFEST, {**self._usual_manifest(), **self.manifest})
        if self.counted:
            launcher = Recorder(folder / LAUNCHER_TRACE)
            for event in self.counted:
                launcher.write(event)
            launcher.close()
        seal(folder, self.cell.ranks)
        return folder

    def spans(self) -> list[tuple[int, int]]:
        """Of every attempt, the steps done before it and those done when it ends."""
        whole = self.cell.epochs * self.steps_per_epoch
        if not self.kills:
            return [(attempt * self.steps_per_epoch, whole) for attempt in range(self.attempts)]
        every = self.cell.interval.steps(self.steps_per_epoch)
        ends = [kill.step for kill in self.kills]
        versions = [(step - 1) // every * every for step in ends]
        return list(zip([0, *versions], [*ends, whole], strict=True))

    def _usual_manifest(self) -> dict[str, Any]:
        training = dataclasses.replace(
            TRAINING, warmup_steps=self.warmup_steps, keep_during_run=self.keep
        )
        return {
            "schema_version": SCHEMA_VERSION,
            "cell_id": self.cell.id,
            "cell": self.cell.to_json(),
            "training": {**dataclasses.asdict(training), "proof": self.proof},
            "seed": 1 + self.cell.repeat,
            "status": "complete",
            "attempts": len(self.spans()),
            "failures": [kill.failure.to_json() for kill in self.kills],
            "strikes": [
                {"failure": number, "attempt": number + 1} for number in range(len(self.kills))
            ],
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
            "run_id": "1" * 32,
            "dataset_sha256": "2" * 64,
            "lock_sha256": "0" * 64,
            "source": {"revision": "a" * 40, "dirty": False},
            "state_bytes": {"model": self.model_bytes, "optimizer": 300, "rest": 100},
        }


class _Rank:
    """Writes the trace of one rank, attempt after attempt."""

    def __init__(self, run: FakeRun, rank: int, folder: Path) -> None:
        self._run, self._rank, self._folder = run, rank, folder
        self._recorder = Recorder(trace_path(folder, rank))
        self._now_ns = 10**12 * (1 + rank)  # ranks may be on different hosts: no clock is shared
        self._attempt = 0
        self._first = 0
        self._saved: dict[int, tuple[int, int]] = {}
        """Epoch and attempt of each version, by its step."""

    def run(self) -> None:
        run = self._run
        for self._attempt, (self._first, last) in enumerate(run.spans(), start=1):
            self._recorder.close()
            self._recorder = Recorder(trace_path(self._folder, self._rank))
            self._start()
            for epoch in range(self._first // run.steps_per_epoch, run.cell.epochs):
                if not self._epoch(epoch, last):
                    break
        self._see("end", run.cell.epochs - 1, last)
        if run.proof and run.model_bytes < KEPT_BYTES:
            arrays = self._state("end", last)
            np.savez(final_path(self._folder, self._rank), **arrays)  # type: ignore[arg-type]
        for step, (epoch, attempt) in sorted(self._saved.items())[-run.keep :]:
            self._attempt = attempt
            for level in (each for each in run.levels if run.takes(each, step)):
                self._see("version", epoch, step, level)
        if run.written_after:
            self._pass(0.01)
            self._look("written", last)
        self._look("closed", last)
        self._recorder.write(End(monotonic_ns=self._now_ns))
        self._recorder.close()

    def _start(self) -> None:
        run = self._run
        for name in ("launch", "import"):
            self._phase(name, self._pass(2.0))
        self._recorder.write(
            Start(
                attempt=self._attempt,
                rank=self._rank,
                world_size=run.cell.ranks,
                host="node1",
                pid=1,
                device="cpu",
                monotonic_ns=self._now_ns,
                unix_ns=self._now_ns,
                versions={},
            )
        )
        self._phase("build", self._pass(1.0))
        if not self._goes_on:
            return
        if run.cell.cache == "cold":
            self._phase("evict", self._pass(4.0))
        window = self._pass(run.load_s(self._rank, self._attempt))
        size = sum(run.files.values())
        self._phase("load", window, read_bytes=run.read_bytes, bytes=size)
        epoch = (self._first - 1) // run.steps_per_epoch
        self._see("loaded", epoch, self._first)
        if self._first % run.steps_per_epoch == 0:
            self._see("epoch", epoch, self._first)

    @property
    def _goes_on(self) -> bool:
        """Whether this attempt is the restart of a killed one."""
        return bool(self._run.kills) and self._attempt > 1

    def _epoch(self, epoch: int, last: int) -> bool:
        """Returns whether the attempt lives on."""
        run, start_ns = self._run, self._now_ns
        end = (epoch + 1) * run.steps_per_epoch
        for step in range(max(epoch * run.steps_per_epoch, self._first), min(end, last)):
            self._step(step, epoch)
            if self._killed(step + 1):
                return False
            if run.cell.interval.due(steps_done=step + 1, steps_per_epoch=run.steps_per_epoch):
                self._checkpoint(epoch, step + 1)
        self._recorder.write_steps(epoch)
        self._recorder.write(Epoch(epoch=epoch, start_ns=start_ns, end_ns=self._now_ns, samples=80))
        self._look("epoch", end)
        self._see("epoch", epoch, end)
        if run.evaluates:
            start_ns, end_ns = self._pass(7.0)
            self._recorder.write(
                Evaluation(
                    epoch=epoch,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    samples=10,
                    loss_sum=20.0 + self._rank,
                    correct=4 + self._rank,
                )
            )
        return True

    def _step(self, step: int, epoch: int) -> None:
        window = self._pass(self._run.step_s(self._rank, step))
        self._recorder.step(step, *window, self._run.loss(self._rank, step))
        if self._goes_on and step == self._first:
            self._phase("first_step", window)
            self._see("stepped", epoch, step + 1)

    def _killed(self, step: int) -> bool:
        kill = dict(enumerate(self._run.kills, start=1)).get(self._attempt)
        if kill is None or kill.step != step:
            return False
        # A failure at a step waits for the next one to begin. This rank ends before, which makes no difference here.
        if kill.rank == self._rank:
            self._record_strike()
        return True

    def _record_strike(self) -> None:
        number = self._attempt - 1
        times = {"monotonic_ns": self._now_ns, "unix_ns": self._now_ns - self._rank * 10**12}
        journal = Recorder(strikes_path(self._folder, self._rank))
        journal.write(Begun(monotonic_ns=1, unix_ns=1))
        journal.write(Strike(failure=number, kind="kill", attempt=self._attempt, **times))
        journal.write(Struck(failure=number, **times))
        journal.close()

    def _checkpoint(self, epoch: int, step: int) -> None:
        self._look("before", step)
        self._see("saved", epoch, step)
        if self._run.proof:
            paused_ns, resumed_ns = self._pass(self._run.pause_s)
            self._recorder.write(Pause(step=step, start_ns=paused_ns, end_ns=resumed_ns))
        self._saved[step] = epoch, self._attempt
        start_ns, end_ns = self._pass(self._run.stall_s(self._rank, step))
        scale_ns = float(end_ns - start_ns)
        if self._run.durable_s is not None:
            scale_ns = self._run.durable_s * 1e9 / SHARES["committed"]
        at_ns = {name: start_ns + round(share * scale_ns) for name, share in SHARES.items()}
        self._recorder.write(Save(step=step, epoch=epoch, start_ns=start_ns, end_ns=end_ns))
        self._look("saved", step)
        self._recorder.write(Captured(step=step, at_ns=end_ns))
        files = [_file(name, size) for name, size in self._run.files.items()]
        mine = [file for file in files if self._rank in (file.rank, 0)]
        levels = [level for level in self._run.levels if self._run.takes(level, step)]
        lag_ns = {level: round(place * self._run.lag_s * 1e9) for place, level in enumerate(levels)}
        for level in levels:
            written_ns = at_ns["written"] + lag_ns[level]
            self._recorder.write(Written(step=step, level=level, at_ns=written_ns, files=mine))
        for level in levels:
            if self._rank != 0 and (level == SHARED or not self._run.is_spread):
                continue
            self._recorder.write(
                Durable(
                    step=step,
                    level=level,
                    **{
                        f"{name}_ns": at_ns[name] + lag_ns[level]
                        for name in at_ns
                        if name != "written"
                    },
                    files=files,
                )
            )
        if self._rank == 0 and self._run.removal_s:
            removed_ns = end_ns + round(self._run.removal_s * 1e9)
            self._recorder.write(Retained(step=step, start_ns=end_ns, end_ns=removed_ns))
        for why, seconds in self._run.hold_s.items() if self._rank == 0 else ():
            start_ns, end_ns = self._pass(seconds)
            self._recorder.write(Hold(step=step, why=why, start_ns=start_ns, end_ns=end_ns))  # type: ignore[arg-type]
        if self._run.kills:
            self._recorder.write_steps(epoch)

    def _look(self, when: MemoryMoment, step: int) -> None:
        now = self._run.memory(when, self._rank, step)
        self._recorder.write(
            Memory(
                when=when,
                step=step,
                at_ns=self._now_ns,
                bytes=now,
                shared_bytes=0,
                peak_bytes=now + self._run.peak(when, self._rank, step),
                threads=self._run.threads,
                processes=self._run.threads - 1,
                gpu_peak_bytes=self._run.gpu_peak if when == "epoch" else None,
            )
        )

    def _see(self, when: str, epoch: int, step: int, level: str | None = None) -> None:
        if not self._run.proof:
            return
        state = digests(self._state(when, step, level))
        tensors = {
            name: d for name, d in state.items() if name.startswith(("model/", "optimizer/"))
        }
        own = {name: state[name] for name in state.keys() - tensors.keys()}
        self._recorder.write(
            Digest(when=when, step=step, epoch=epoch, level=level, tensors=tensors, rank_state=own)
        )

    def _state(self, when: str, step: int, level: str | None = None) -> Arrays:
        state = self._run.state(Moment(when, self._rank, step, self._attempt, level))
        return {
            name: a
            for name, a in state.items()
            if (name, when in ("end", "version")) != ("position/data", True)
        }

    def _phase(self, name: str, window: tuple[int, int], **fields: int | None) -> None:
        start_ns, end_ns = window
        self._recorder.write(Phase(name=name, start_ns=start_ns, end_ns=end_ns, **fields))

    def _pass(self, seconds: float) -> tuple[int, int]:
        """Let time go by; returns when it began and ended, ns."""
        start_ns = self._now_ns
        self._now_ns += round(seconds * 1e9)
        return start_ns, self._now_ns


def _file(name: str, size: int) -> File:
    """As the strategy `native` would say it: what is one rank's own is `rank-<rank>.safetensors`."""
    own = re.fullmatch(r"rank-(\d+)\.safetensors", name)
    return File(
        name=name,
        kind="own" if own else "state",
        rank=int(own[1]) if own else None,
        bytes=size,
    )
