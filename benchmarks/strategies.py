"""What each strategy costs a network of PyTorch, all of them in one run, in turn.

Each variant, one of them without checkpoints, trains in processes of its own: a library that is loaded may slow every step.
Each round has one block for every variant, in random order, while the others wait. A block is some checkpoints, each
followed by `--interval` training steps, and ends when all of its checkpoints are durable. So a block's time over that of
the same round's block without checkpoints is the total overhead: stall, slowdown and what is left at the end. Then every
strategy saves once while nothing trains. A pair of blocks in which other programs used more than `OTHERS` of a core is left
out and counted. `memory` is what the ranks' processes took at most, above those that train without checkpoints, over the bytes
of the state; memory that a GPU's driver allocates is not in it.

The variant `disk` is the least that any engine can cost here: it copies nothing, and a thread writes as many bytes as the
state has, past the page cache. `above disk` is what a strategy costs beyond that, and `to disk` the time of this write over that
until a checkpoint is durable, both while training and while idle. On a virtual machine the host's work for its
disk can take the processors that train (`stolen`, in cores): then `disk` costs a large part of a step.

    PYTHONPATH=src .environments/pytorch/bin/python benchmarks/strategies.py --strategies native,deepfreeze,deepfreeze@numpy

`@numpy` does without the native copy. It needs NumPy, PyTorch and ckptbench's own files, and makes everything else itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import os
import random
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from ratio import median_interval
from training import LENGTH, OPTIMIZERS, OVER_PYTORCH, RESULTS, Saver, Training

from ckptbench.checkpointing.contract import done
from ckptbench.checkpointing.copying import WAY, kept_memory
from ckptbench.checkpointing.store import fsync
from ckptbench.common.files import write_file
from ckptbench.frameworks.pytorch import PyTorch
from ckptbench.matrix.networks.models import ARCHITECTURES
from ckptbench.matrix.registry import STRATEGIES, Precision, load
from ckptbench.run.control.joining import pin
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.control.variables import steady_heap
from ckptbench.run.footprints import Footprint, forget_peak
from ckptbench.run.trace import Checkpoint, read_trace

NONE, DISK = "none", "disk"
CHOSEN = ("framework", "optimizer", "precision", "length")
"""Options that callers may leave out."""
KEEP = 2
SETTLING = KEEP + 2
"""Checkpoints of every strategy before the first round: from then on those that recycle files do."""
OTHERS = 0.1
TICKS = os.sysconf("SC_CLK_TCK")
STOLEN = 7
"""The place of the stolen time in a processor's line of /proc/stat (man 5 proc_stat)."""
DIRECT_ALIGNMENT = 4096
"""Bytes: a file that is written past the page cache has a multiple of it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=ARCHITECTURES, default="resnet50")
    parser.add_argument("--framework", choices=OVER_PYTORCH, default=OVER_PYTORCH[0])
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--precision", choices=get_args(Precision), default="fp32")
    parser.add_argument("--length", type=int, default=LENGTH, help="tokens of a sequence")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16, help="samples per rank and step")
    parser.add_argument("--interval", type=int, default=10, help="steps after every checkpoint")
    parser.add_argument("--checkpoints", type=int, default=2, help="of a block")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--at-most-s", type=float, default=math.inf, help="no second round begins later than this"
    )
    parser.add_argument(
        "--strategies", help="separated by commas; default: all that serve the framework"
    )
    parser.add_argument("--cores", help="which the ranks share, as 0,1; default: all")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="on the file system to measure"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="write all figures there, too")
    parser.add_argument(
        "--from", dest="given", type=Path, help="show the figures in this file of --json"
    )
    options = parser.parse_args()
    if options.given is not None:
        show(json.loads(options.given.read_text(encoding="utf-8")))
        return
    found = measure(options)
    show(found)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one model and number of ranks; times in seconds, one value a round or checkpoint."""
    options.folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found, first, written_s = _run(options, Path(folder))
        found[DISK] |= _of_disk(written_s, first[DISK])
        for name in chosen(options):
            found["strategies"][name] |= _of_traces(Path(folder), name, options, first[name])
    return found


def _run(
    options: argparse.Namespace, folder: Path
) -> tuple[dict[str, Any], dict[str, tuple[int, list[int]]], list[list[float]]]:
    """All that is no trace's, what `Bench.first` says of each variant, and how long each write of `DISK` took, by rank."""
    started_s = time.monotonic()
    names = [NONE, DISK, *chosen(options)]
    order = random.Random(0)
    measured: dict[str, dict[str, list[float]]] = {
        name: {"block_s": [], "others": [], "stolen": []} for name in names
    }
    with ExitStack() as stack:
        variants = {name: stack.enter_context(running(name, options, folder)) for name in names}
        for each in variants.values():
            each.all("settle_in")
        rounds, ends = 0, started_s + options.at_most_s
        while not rounds or (rounds < options.rounds and time.monotonic() < ends):
            rounds += 1
            order.shuffle(names)
            for name in names:
                others_s, stolen_s, started = (
                    *_used_by_others(variants, options),
                    time.perf_counter(),
                )
                measured[name]["block_s"].append(max(variants[name].all("block")))
                took_s, (others_now_s, stolen_now_s) = (
                    time.perf_counter() - started,
                    _used_by_others(variants, options),
                )
                measured[name]["others"].append((others_now_s - others_s) / took_s)
                measured[name]["stolen"].append((stolen_now_s - stolen_s) / took_s)
            for name in names:
                variants[name].all("save_idle")
        device = variants[NONE].all("device")[0]
        state_bytes = variants[NONE].all("state_bytes")[0]
        for name, each in variants.items():
            measured[name]["memory_bytes"] = [sum(each.all("memory_bytes"))]
        first = {name: each.all("first")[0] for name, each in variants.items()}
        written_s = variants[DISK].all("written_s")
    settings = {
        name: getattr(options, name)
        for name in ("model", *CHOSEN, "ranks", "batch", "interval", "checkpoints")
        if hasattr(options, name)
    }
    found = {
        "device": device,
        "torch": torch.__version__,
        **settings,
        "rounds": rounds,
        "state_bytes": state_bytes,
        NONE: measured[NONE],
        DISK: measured[DISK],
        "strategies": {name: measured[name] for name in chosen(options)},
    }
    return found, first, written_s


class Variant:
    """The ranks of one variant, each a process that waits until it is asked."""

    def __init__(self, pids: Sequence[int], connections: Sequence[Connection]) -> None:
        self.pids = pids
        self._connections = connections

    def all(self, what: str) -> list[Any]:
        """Have every rank do it, at the same time. Returns what each answers."""
        for each in self._connections:
            each.send(what)
        return [each.recv() for each in self._connections]


@contextmanager
def running(name: str, options: argparse.Namespace, folder: Path) -> Iterator[Variant]:
    spawn, address = multiprocessing.get_context("spawn"), f"127.0.0.1:{_free_port()}"
    pipes = [spawn.Pipe() for _ in range(options.ranks)]
    worlds = [
        RankContext(
            rank=rank, world_size=options.ranks, local_rank=rank, node="here",
            threads=max(1, len(cores(options)) // options.ranks),
            addresses=(address,) * options.ranks, accelerator=options.device,
        )
        for rank in range(options.ranks)
    ]  # fmt: skip
    ranks = [
        spawn.Process(target=_rank, args=(end, name, world, options, folder))
        for (_, end), world in zip(pipes, worlds, strict=True)
    ]
    os.environ.update(steady_heap(os.environ))
    for each in ranks:
        each.start()
    for _, end in pipes:
        end.close()  # so that the death of a rank ends its pipe
    variant = Variant([each.pid or 0 for each in ranks], [asking for asking, _ in pipes])
    try:
        yield variant
        variant.all("close")
    finally:
        for asking, _ in pipes:
            asking.close()  # a rank that still waits ends
        for each in ranks:
            each.join()


def _rank(
    asked: Connection, name: str, world: RankContext, options: argparse.Namespace, folder: Path
) -> None:
    strategy, _, way = name.partition("@")
    os.environ[WAY] = way
    os.sched_setaffinity(0, cores(options))
    pin(world.rank, world.threads)
    bench = Bench(world, strategy, options, folder / name)
    while (what := asked.recv()) != "close":
        asked.send(getattr(bench, what)())
    bench.close()
    asked.send(None)


class Bench:
    """One rank: a framework, and a strategy over it if the variant has one."""

    def __init__(
        self, world: RankContext, strategy: str, options: argparse.Namespace, folder: Path
    ) -> None:
        self._options = options
        self._training = Training(
            world,
            options.model,
            options.batch,
            **{name: getattr(options, name) for name in CHOSEN if hasattr(options, name)},
        )
        self._framework = self._training.framework
        self._saver: Saver | DiskAlone | None = None
        if strategy == DISK:
            self._saver = DiskAlone(self._framework, world, folder)
        elif strategy != NONE:
            self._saver = Saver(strategy, self._framework, world, folder, keep=KEEP)
            self._framework.before_update = self._saver.hook
        self._idle: list[int] = []
        self._settled = 0

    def settle_in(self) -> None:
        self._training.train(5)
        if self._saver is not None:
            self._saver.ready()
            for _ in range(SETTLING):
                self._saver.save_next()
                self._training.train(1)
                self._saver.settle()
            self._settled = self._saver.saves
        forget_peak()

    def block(self) -> float:
        gc.collect()
        self._training.train(1)  # the processor's caches have been those of another variant
        self._framework.barrier()
        started = time.perf_counter()
        for _ in range(self._options.checkpoints):
            if self._saver is not None:
                self._saver.save_next()
            self._training.train(self._options.interval)
        if self._saver is not None:
            self._saver.settle()
        self._framework.barrier()
        took_s = time.perf_counter() - started
        if self._options.device == "cuda":
            torch.cuda.empty_cache()  # the variants share the GPU's memory
        return took_s

    def save_idle(self) -> None:
        if self._saver is not None:
            self._idle.append(self._saver.saves + 1)
            self._saver.save_next()
            self._saver.settle()

    def first(self) -> tuple[int, list[int]]:
        """The checkpoints before the first round, and which of the others were saved while nothing trained."""
        return self._settled, self._idle

    def written_s(self) -> list[float]:
        assert isinstance(self._saver, DiskAlone)
        return self._saver.written_s

    def device(self) -> str:
        return self._framework.device()

    def state_bytes(self) -> int:
        return sum(handle.nbytes for handle in self._framework.handles())

    def memory_bytes(self) -> int:
        """The most that this rank, with all processes that it has started, took since it had settled."""
        return Footprint.now().peak_bytes

    def close(self) -> None:
        if self._saver is not None:
            self._saver.close()
        self._framework.close()


class DiskAlone:
    """A rank's part of the state's bytes, written by a thread while the next step computes: nothing is copied or checked."""

    def __init__(self, framework: PyTorch, world: RankContext, folder: Path) -> None:
        nbytes = sum(handle.nbytes for handle in framework.handles()) // world.world_size
        self._memory = kept_memory(-(-nbytes // DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT)
        self._folder = folder.with_name(f"{folder.name}-{world.rank}")
        self._writing = ThreadPoolExecutor(1)
        self._written: Future[None] = done(None)
        self.saves = 0
        self.written_s: list[float] = []
        """One value a save."""

    def ready(self) -> None:
        self._folder.mkdir()

    def save_next(self) -> None:
        self.settle()
        self.saves += 1
        path = self._folder / f"{self.saves % KEEP}"
        self._written = self._writing.submit(self._write, path, time.perf_counter())

    def _write(self, path: Path, began_s: float) -> None:
        write_file(str(path), str(path), self._memory.data)
        fsync(path)
        self.written_s.append(time.perf_counter() - began_s)

    def settle(self) -> None:
        self._written.result()

    def close(self) -> None:
        self._writing.shutdown()


def cores(options: argparse.Namespace) -> set[int]:
    return set(map(int, options.cores.split(","))) if options.cores else os.sched_getaffinity(0)


def _used_by_others(
    variants: dict[str, Variant], options: argparse.Namespace
) -> tuple[float, float]:
    """Seconds of these cores since the machine began: used by all but the ranks and this process, and by other machines."""
    lines = (line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines())
    named = {name: [*map(int, ticks)] for name, *ticks in lines if name.startswith("cpu")}
    ticks = np.sum([named[f"cpu{core}"] for core in cores(options)], axis=0)
    own = [os.getpid(), *(pid for each in variants.values() for pid in each.pids)]
    return (sum(ticks[:3]) - sum(map(_ticks, own))) / TICKS, ticks[STOLEN] / TICKS


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@cache
def usable(framework: str) -> tuple[str, ...]:
    """The strategies that serve the framework and whose libraries are installed, in the registry's order."""
    serving = [name for name, entry in STRATEGIES.items() if entry.serves(framework)]
    return tuple(name for name in serving if _is_installed(name))


def _is_installed(strategy: str) -> bool:
    try:
        load(STRATEGIES[strategy].location)
    except ImportError:
        return False
    return True


def chosen(options: argparse.Namespace) -> list[str]:
    """The strategies to measure, in the registry's order."""
    framework = getattr(options, "framework", OVER_PYTORCH[0])
    serving = usable(framework)
    asked = serving if options.strategies is None else options.strategies.split(",")
    if unknown := {name.partition("@")[0] for name in asked} - set(serving):
        raise SystemExit(
            f"--strategies: {min(unknown)} does not serve {framework}, or its library is not installed: "
            f"use {', '.join(serving)}"
        )
    return list(asked)


def _of_disk(
    written_s: Sequence[Sequence[float]], first: tuple[int, list[int]]
) -> dict[str, list[float]]:
    settled, idle = first
    longest_s = np.max(written_s, axis=0).tolist()
    trained = [step for step in range(settled + 1, len(longest_s) + 1) if step not in idle]
    return {
        "durable_s": [longest_s[step - 1] for step in trained],
        "durable_idle_s": [longest_s[step - 1] for step in idle],
    }


def _of_traces(
    folder: Path, name: str, options: argparse.Namespace, first: tuple[int, list[int]]
) -> dict[str, list[float]]:
    traces = [
        read_trace(folder / f"{name}-{rank}.jsonl").checkpoints for rank in range(options.ranks)
    ]
    settled, idle = first
    steps = sorted(set.intersection(*(set(trace) for trace in traces)))
    trained = [step for step in steps if step > settled and step not in idle]
    return {
        "stall_s": [max(_stall_s(trace[step]) for trace in traces) for step in trained],
        "durable_s": [_durable_s(traces[0][step]) for step in trained],
        "durable_idle_s": [_durable_s(traces[0][step]) for step in idle],
    }


def _stall_s(checkpoint: Checkpoint) -> float:
    assert checkpoint.save is not None
    held = sum(hold.end_ns - hold.start_ns for hold in checkpoint.holds if hold.why != "end")
    return (checkpoint.save.end_ns - checkpoint.save.start_ns + held) / 1e9


def _durable_s(checkpoint: Checkpoint) -> float:
    assert checkpoint.save is not None
    return (checkpoint.durable["shared"].committed_ns - checkpoint.save.start_ns) / 1e9


def show(found: dict[str, Any]) -> None:
    """Print one line a strategy."""
    trained = "".join(f", {found[name]}" for name in ("optimizer", "precision") if name in found)
    none_s, steps = np.asarray(found[NONE]["block_s"]), found["interval"] * found["checkpoints"]
    print(
        f"{found.get('framework', OVER_PYTORCH[0])}, {found['model']}{trained}, {found['ranks']} ranks, batch {found['batch']}, {found['device']}, torch {found['torch']}: "
        f"step {np.median(none_s) / steps * 1e3:.1f} ms, state {found['state_bytes'] / 1e6:.1f} MB, {found['rounds']} rounds, "
        f"a checkpoint every {found['interval']} steps"
    )
    print(
        f"{'':22}{'stall ms':>10}{'/ native':>10}{'durable ms':>12}{'idle':>7}{'overhead %':>24}{'above disk %':>24}"
        f"{'to disk':>8}{'idle':>6}{'memory':>8}{'stolen':>8}{'left out':>10}"
    )
    print(
        f"{DISK:22}{'':20}{_durable(found[DISK])}{_over(found, found[DISK], NONE)}{'':38}{_memory(found, found[DISK])}{_stolen(found[DISK])}"
    )
    native = found["strategies"].get("native")
    for name, of in found["strategies"].items():
        stall_s = np.median(of["stall_s"])
        to_native = stall_s / np.median(native["stall_s"]) if native else np.nan
        print(
            f"{name:22}{stall_s * 1e3:10.2f}{to_native:10.4f}"
            f"{_durable(of)}{_over(found, of, NONE)}{_over(found, of, DISK)}{_to_disk(found, of)}{_memory(found, of)}{_stolen(of)}{(~_undisturbed(found, of, NONE)).sum():10}"
        )


def _over(found: dict[str, Any], of: dict[str, list[float]], base: str) -> str:
    """The median and its interval of how much longer a block took than that of `base`, in percent of one of training alone."""
    longer = np.subtract(of["block_s"], found[base]["block_s"]) / found[NONE]["block_s"]
    kept = 100 * longer[_undisturbed(found, of, base)]
    if not len(kept):
        return f"{'-':>24}"
    return "{:10.1f} [{:5.1f},{:5.1f}]".format(np.median(kept), *median_interval(kept))


def _durable(of: dict[str, list[float]]) -> str:
    return f"{np.median(of['durable_s']) * 1e3:12.0f}{np.median(of['durable_idle_s']) * 1e3:7.0f}"


def _to_disk(found: dict[str, Any], of: dict[str, list[float]]) -> str:
    trained, idle = (
        np.median(found[DISK][when]) / np.median(of[when])
        for when in ("durable_s", "durable_idle_s")
    )
    return f"{trained:8.2f}{idle:6.2f}"


def _undisturbed(found: dict[str, Any], of: dict[str, list[float]], base: str) -> NDArray[np.bool_]:
    used = [each["others"] for each in (of, found[base], found[NONE])]
    return np.max(used, axis=0) <= OTHERS


def _memory(found: dict[str, Any], of: dict[str, list[float]]) -> str:
    (taken,), (alone,) = of["memory_bytes"], found[NONE]["memory_bytes"]
    return f"{(taken - alone) / found['state_bytes']:8.2f}"


def _stolen(of: dict[str, list[float]]) -> str:
    return f"{np.median(of['stolen']):8.2f}"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
