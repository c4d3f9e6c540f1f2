"""What ckptbench itself adds to the stall of a checkpoint. The promise: at most 3 % of the stall of a plain script.

PyTorch's ResNet-50 trains with momentum. After every few steps its state is saved twice, in random order: by a plain
script (`torch.save`, sync of file and folder, rename, removal of the oldest version), and by the strategy `native` as a
run calls it. Both keep the same number of versions on the same file system, so that a change in the machine's
speed affects both. Each run begins with empty folders. Its first checkpoints are written to fresh blocks, later ones to
blocks that a removed version has freed; they are reported apart.

ckptbench removes old versions behind training, so the steps after a checkpoint may be slower. `with the steps after it`
therefore compares the stall and the following steps together.

It needs PyTorch's environment, and `make benchmarks` starts it there:

    PYTHONPATH=../src ../.environments/pytorch/bin/python own_cost.py
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ratio import report

from ckptbench.checkpoints.levels import Levels
from ckptbench.frameworks.contract import Sgd
from ckptbench.frameworks.pytorch import PyTorch
from ckptbench.matrix.levels import SHARED
from ckptbench.matrix.networks.models import ARCHITECTURES
from ckptbench.matrix.registry import NATIVE
from ckptbench.runs.identity import Identity
from ckptbench.runs.position import Position
from ckptbench.runs.recorder import Recorder
from ckptbench.runs.trace import read_trace
from ckptbench.strategies.timed import TimedCheckpointer
from ckptbench.world.ranks import RankContext

ROOT = Path(__file__).resolve().parents[1]
PROMISE = 1.03
BATCH = 16
IDENTITY = Identity(
    run_id="0" * 32,
    cell={"framework": "pytorch", "model": "resnet50", "ranks": 1},
    training={"seed": 1},
    dataset_sha256="0" * 64,
    lock_sha256="0" * 64,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        help="on the file system to measure; default: a new folder in results/",
    )
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--checkpoints", type=int, default=10, help="of each kind in a run")
    parser.add_argument("--steps", type=int, default=3, help="between two checkpoints")
    parser.add_argument("--keep", type=int, default=2, help="versions kept")
    options = parser.parse_args()
    (ROOT / "results").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder or ROOT / "results") as folder:
        place = RankContext(
            rank=0, world_size=1, local_rank=0, node="here", threads=os.cpu_count() or 1,
            addresses=("127.0.0.1:1",),
        )  # fmt: skip
        training = Training(place)
        runs = [
            one_run(Path(folder, f"run-{number}"), training, place, options, random.Random(number))
            for number in range(options.runs)
        ]
    show(runs, first=options.keep + 1)


class Training:
    """PyTorch's ResNet-50 on random images."""

    def __init__(self, place: RankContext) -> None:
        draw = np.random.default_rng(0)
        self.images = draw.random((BATCH, 32, 32, 3), np.float32)
        self.labels = draw.integers(10, size=BATCH)
        self.framework = PyTorch.join(place, seed=1, deterministic=False)
        network = ARCHITECTURES["resnet50"]((32, 32, 3), 10)
        sgd = Sgd(learning_rate=0.001, momentum=0.9, weight_decay=0.0)
        self.framework.build(network, dict(network.initial_weights(1)), sgd, BATCH)
        self.train(3)

    def train(self, steps: int) -> float:
        """Seconds that the steps took."""
        started = time.perf_counter()
        for _ in range(steps):
            self.framework.step(self.images, self.labels)
        return time.perf_counter() - started


class PlainScript:
    """What a careful user writes."""

    def __init__(self, folder: Path, framework: PyTorch, keep: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.framework, self.keep = folder, framework, keep
        self.parts: list[dict[str, float]] = []

    def save(self, step: int) -> None:
        started = time.perf_counter()
        path = self.folder / f"checkpoint-{step:08d}.pt"
        partial = path.with_suffix(".partial")
        state = {
            "model": self.framework.module.state_dict(),
            "optimizer": self.framework.optimizer.state_dict(),
            "random": [
                torch.get_rng_state(),
                pickle.dumps(np.random.get_state()),
                random.getstate(),
            ],
            "step": step,
        }
        torch.save(state, partial)
        written = time.perf_counter()
        sync(partial)
        synced = time.perf_counter()
        partial.rename(path)
        sync(self.folder)
        committed = time.perf_counter()
        for old in sorted(self.folder.glob("checkpoint-*.pt"))[: -self.keep]:
            old.unlink()
        removed = time.perf_counter()
        self.parts.append(
            {"write": written - started, "sync": synced - written, "commit": committed - synced, "retain": removed - committed}
        )  # fmt: skip


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class Run:
    """The seconds of one run: for each place in it the stall and the steps after it, by kind."""

    def __init__(self) -> None:
        self.stall_s: dict[str, list[float]] = {"ckptbench": [], "plain script": []}
        self.after_s: dict[str, list[float]] = {"ckptbench": [], "plain script": []}
        self.parts: dict[str, list[dict[str, float]]] = {}


def one_run(
    folder: Path,
    training: Training,
    place: RankContext,
    options: argparse.Namespace,
    draw: random.Random,
) -> Run:
    plain = PlainScript(folder / "plain", training.framework, options.keep)
    trace = folder / "trace-0.jsonl"
    recorder = Recorder(trace)
    own = TimedCheckpointer(
        NATIVE,
        subject=training.framework,
        barrier=training.framework.barrier,
        place=place,
        format="torch_save",
        identity=IDENTITY,
        levels=Levels({SHARED: folder / "own"}, keep=options.keep),
        recorder=recorder,
        on_stage=lambda stage: None,
    )
    savers: dict[str, Callable[[int], None]] = {
        "ckptbench": lambda step: own.save(Position(step=step, epoch=0, step_in_epoch=step)),
        "plain script": plain.save,
    }
    run = Run()
    for number in range(1, options.checkpoints + 1):
        for name in draw.sample(sorted(savers), len(savers)):
            started = time.perf_counter()
            savers[name](number)
            run.stall_s[name].append(time.perf_counter() - started)
            run.after_s[name].append(training.train(options.steps))
    own.close()
    recorder.close()
    run.parts = {"ckptbench": own_parts(trace), "plain script": plain.parts}
    shutil.rmtree(folder)
    os.sync()
    return run


def own_parts(trace: Path) -> list[dict[str, float]]:
    parts = []
    for checkpoint in read_trace(trace).checkpoints.values():
        save, written = checkpoint.save, checkpoint.written["shared"]
        durable, retained = checkpoint.durable["shared"], checkpoint.retained
        assert save is not None
        moments = [
            save.start_ns,
            written.at_ns,
            durable.synced_ns,
            durable.checked_ns,
            durable.committed_ns,
        ]
        names = ("write", "sync", "checksum", "commit")
        part = dict(zip(names, np.diff(moments) / 1e9, strict=True))
        behind = 0.0 if retained is None else (retained.end_ns - retained.start_ns) / 1e9
        parts.append({**part, "retain behind training": behind})
    return parts


def show(runs: list[Run], *, first: int) -> None:
    places = range(len(runs[0].stall_s["ckptbench"]))
    groups = {
        **{f"checkpoint {place + 1} of a run": [place] for place in places},
        f"checkpoints 1 to {first}": list(places)[:first],
        f"steady state, from checkpoint {first + 1} on": list(places)[first:],
    }
    for name, chosen in groups.items():
        if not chosen:
            continue
        print(f"{name}: stall")
        report(pairs(runs, chosen), "ckptbench", "plain script", promise=PROMISE)
        if len(chosen) > 1:
            print(f"{name}: stall with the steps after it")
            report(pairs(runs, chosen, after=True), "ckptbench", "plain script", promise=PROMISE)
            for kind in ("ckptbench", "plain script"):
                print(f"  {kind}: {parts_in_words(runs, kind, chosen)}")


def pairs(runs: list[Run], places: list[int], *, after: bool = False) -> list[tuple[float, float]]:
    return [
        tuple(
            run.stall_s[kind][place] + after * run.after_s[kind][place]
            for kind in ("ckptbench", "plain script")
        )
        for run in runs
        for place in places
    ]


def parts_in_words(runs: list[Run], kind: str, places: list[int]) -> str:
    parts = [run.parts[kind][place] for run in runs for place in places]
    medians = {name: np.median([part[name] for part in parts]) for name in parts[0]}
    return ", ".join(f"{name} {1e3 * median:.1f} ms" for name, median in medians.items())


if __name__ == "__main__":
    main()
