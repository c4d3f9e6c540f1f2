"""What each strategy costs PyTorch's ResNet-50 or VGG-16, all of them in one run, in turn.

Each round has one block for every strategy and one without checkpoints, in random order. A block is some checkpoints,
each followed by `--interval` training steps, and ends when all of its checkpoints are durable. So a block's time over
that of the same round's block without checkpoints is the total overhead: stall, slowdown and what is left at the end.
Then every strategy saves once while nothing trains.

    PYTHONPATH=src .environments/pytorch/bin/python benchmarks/strategies.py --model resnet50 --ranks 1

It needs NumPy, PyTorch and ckptbench's own files, and makes everything else itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import random
import socket
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ratio import median_interval
from training import RESULTS, Saver, Training

from ckptbench.matrix.registry import STRATEGIES, load
from ckptbench.runs.trace import Checkpoint, read_trace
from ckptbench.world.ranks import RankContext

NONE = "none"
KEEP = 2
SETTLING = KEEP + 2
"""Checkpoints of every strategy before the first round: from then on those that recycle files do."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("resnet50", "vgg16"), default="resnet50")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16, help="samples per rank and step")
    parser.add_argument("--interval", type=int, default=10, help="steps after every checkpoint")
    parser.add_argument("--checkpoints", type=int, default=2, help="of a block")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--strategies", help="separated by commas; default: all that serve PyTorch")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="on the file system to measure"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="write all figures there, too")
    parser.add_argument(
        "--from",
        dest="given",
        type=Path,
        help="show the figures in this file, of on_gpu.py or of --json",
    )
    options = parser.parse_args()
    if options.given is not None:
        content = json.loads(options.given.read_text(encoding="utf-8"))
        for each in content.get("measured", [content]):
            show(each)
        return
    found = measure(options)
    show(found)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one model and number of ranks; times in seconds, one value a round or checkpoint."""
    options.folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        port = _free_port()
        ranks = [
            multiprocessing.get_context("spawn").Process(
                target=_rank, args=(rank, port, options, Path(folder))
            )
            for rank in range(options.ranks)
        ]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        if any(each.exitcode != 0 for each in ranks):
            raise SystemExit(f"a rank ended with {[each.exitcode for each in ranks]}; see above")
        return _gather(options, Path(folder))


def _rank(rank: int, port: int, options: argparse.Namespace, folder: Path) -> None:
    world = RankContext(
        rank=rank, world_size=options.ranks, local_rank=rank, node="here",
        threads=max(1, (os.cpu_count() or 1) // options.ranks),
        addresses=(f"127.0.0.1:{port}",) * options.ranks, accelerator=options.device,
    )  # fmt: skip
    bench = Bench(world, options, folder)
    bench.run()
    (folder / f"rank-{rank}.json").write_text(json.dumps(bench.found), encoding="utf-8")


class Bench:
    """One rank: a framework, and every strategy over it."""

    def __init__(self, world: RankContext, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._training = Training(world, options.model, options.batch)
        self._framework = self._training.framework
        self.found: dict[str, Any] = {"device": self._framework.device(), "blocks": {}, "first": {}}
        self._strategies = {
            name: Saver(name, self._framework, world, folder / name, keep=KEEP)
            for name in chosen(options)
        }

    def run(self) -> None:
        self._training.train(5)
        for name, opened in self._strategies.items():
            opened.timed.ready()
            self._use(name)
            for _ in range(SETTLING):
                opened.save()
                self._training.train(1)
                opened.timed.settle()
            self.found["first"][name] = opened.saves
        order = random.Random(0)
        names = [NONE, *self._strategies]
        self.found["idle"] = {name: [] for name in self._strategies}
        self.found["blocks"] = {name: [] for name in names}
        for _ in range(self._options.rounds):
            order.shuffle(names)
            for name in names:
                self._meet()
                self.found["blocks"][name].append(self._block(name))
            for name in order.sample(list(self._strategies), len(self._strategies)):
                self._meet()
                self.found["idle"][name].append(self._strategies[name].saves + 1)
                self._use(name)
                self._strategies[name].save()
                self._strategies[name].timed.settle()
        for opened in self._strategies.values():
            opened.timed.close()
        self._meet()
        self._framework.close()

    def _block(self, name: str) -> float:
        self._use(name)
        opened = self._strategies.get(name)
        started = time.perf_counter()
        for _ in range(self._options.checkpoints):
            if opened is not None:
                opened.save()
            self._training.train(self._options.interval)
        if opened is not None:
            opened.timed.settle()
        self._framework.barrier()
        return time.perf_counter() - started

    def _use(self, name: str) -> None:
        gc.collect()
        self._framework.before_update = None if name == NONE else self._strategies[name].timed.hook

    def _meet(self) -> None:
        self._framework.barrier()


@cache
def usable() -> tuple[str, ...]:
    """The strategies that serve PyTorch and whose libraries are installed, in the registry's order."""
    serving = [name for name, entry in STRATEGIES.items() if entry.serves("pytorch")]
    return tuple(name for name in serving if _is_installed(name))


def _is_installed(strategy: str) -> bool:
    try:
        load(STRATEGIES[strategy].location)
    except ImportError:
        return False
    return True


def chosen(options: argparse.Namespace) -> list[str]:
    """The strategies to measure, in the registry's order."""
    serving = usable()
    asked = serving if options.strategies is None else options.strategies.split(",")
    if unknown := set(asked) - set(serving):
        raise SystemExit(
            f"--strategies: {min(unknown)} does not serve PyTorch, or its library is not installed: "
            f"use {', '.join(serving)}"
        )
    return list(asked)


def _gather(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    ranks = [
        json.loads((folder / f"rank-{rank}.json").read_text(encoding="utf-8"))
        for rank in range(options.ranks)
    ]
    strategies = {}
    for name in chosen(options):
        traces = [
            read_trace(folder / f"{name}-{rank}.jsonl").checkpoints for rank in range(options.ranks)
        ]
        idle = set(ranks[0]["idle"][name])
        first = ranks[0]["first"][name]
        steps = sorted(set.intersection(*(set(trace) for trace in traces)))
        trained = [step for step in steps if step > first and step not in idle]
        strategies[name] = {
            "block_s": _slowest(rank["blocks"][name] for rank in ranks),
            "stall_s": [max(_stall_s(trace[step]) for trace in traces) for step in trained],
            "durable_s": [_durable_s(traces[0][step]) for step in trained],
            "durable_idle_s": [_durable_s(traces[0][step]) for step in sorted(idle)],
        }
    settings = {
        name: getattr(options, name)
        for name in ("model", "ranks", "batch", "interval", "checkpoints", "rounds")
    }
    return {
        "device": ranks[0]["device"],
        "torch": torch.__version__,
        **settings,
        "none_s": _slowest(rank["blocks"][NONE] for rank in ranks),
        "strategies": strategies,
    }


def _slowest(ranks: Iterable[Sequence[float]]) -> list[float]:
    return [max(values) for values in zip(*ranks, strict=True)]


def _stall_s(checkpoint: Checkpoint) -> float:
    assert checkpoint.save is not None
    held = sum(hold.end_ns - hold.start_ns for hold in checkpoint.holds if hold.why != "end")
    return (checkpoint.save.end_ns - checkpoint.save.start_ns + held) / 1e9


def _durable_s(checkpoint: Checkpoint) -> float:
    assert checkpoint.save is not None
    return (checkpoint.durable["shared"].committed_ns - checkpoint.save.start_ns) / 1e9


def show(found: dict[str, Any]) -> None:
    """Print one line a strategy."""
    none_s = np.asarray(found["none_s"])
    steps = found["interval"] * found["checkpoints"]
    print(
        f"{found['model']}, {found['ranks']} ranks, batch {found['batch']}, {found['device']}, torch {found['torch']}: "
        f"step {np.median(none_s) / steps * 1e3:.1f} ms, {found['rounds']} rounds, a checkpoint every {found['interval']} steps"
    )
    print(f"{'':22}{'stall ms':>10}{'/ native':>10}{'durable ms':>12}{'idle':>7}{'overhead %':>24}")
    native = found["strategies"].get("native")
    for name, of in found["strategies"].items():
        stall_s = np.median(of["stall_s"])
        over = 100 * (np.asarray(of["block_s"]) / none_s - 1)
        low, high = median_interval(over)
        to_native = stall_s / np.median(native["stall_s"]) if native else np.nan
        print(
            f"{name:22}{stall_s * 1e3:10.2f}{to_native:10.4f}"
            f"{np.median(of['durable_s']) * 1e3:12.0f}{np.median(of['durable_idle_s']) * 1e3:7.0f}"
            f"{np.median(over):10.1f} [{low:5.1f},{high:5.1f}]"
        )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
