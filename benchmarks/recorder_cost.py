"""What the recorder and the question whether to stop cost a training loop. The promise: at most 0.5 %.

The loop is a small copy of the real one. A step computes in NumPy for about a millisecond. This is shorter than a step of
any framework, so the recorder weighs more here than in a study. The loop runs with and without the work of the recorder:
the question to the launcher whether to stop, the two clock reads, the note of the step, and the writing of the block
after each epoch. The two loops take turns epoch by epoch, in random order, so that a machine that changes its speed
affects both.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

# One thread, because the waits in a pool of threads would be noisier than the cost measured here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from ratio import report

from ckptbench.machine.clock import clock
from ckptbench.runs.recorder import Recorder
from ckptbench.world.control import ControlServer
from ckptbench.world.link import Link
from ckptbench.world.seats import seats_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300, help="epochs of each loop")
    parser.add_argument("--steps", type=int, default=50, help="steps an epoch")
    parser.add_argument("--size", type=int, default=400, help="of the square matrices of a step")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    matrix = random.standard_normal((options.size, options.size), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "trace-0.jsonl")
        server = ControlServer(seats_of(["here"]), host="127.0.0.1")
        server.serve()
        link = Link.open(server.address, server.token, rank=0, node="here")
        link.meet(rank=0, node="here", device="cpu")
        plain_epoch(matrix, options.steps), recorded_epoch(matrix, options.steps, recorder, link)
        pairs = []
        for _ in range(options.pairs):
            if random.integers(2):
                recorded = recorded_epoch(matrix, options.steps, recorder, link)
                plain = plain_epoch(matrix, options.steps)
            else:
                plain = plain_epoch(matrix, options.steps)
                recorded = recorded_epoch(matrix, options.steps, recorder, link)
            pairs.append((recorded, plain))
        link.close()
        server.close()
    per_step = float(np.median([plain for _, plain in pairs])) / options.steps
    print(f"epochs of {options.steps} steps of {1e6 * per_step:.0f} us")
    report(pairs, "recorded", "plain", promise=1.005)


def step(matrix: np.ndarray) -> float:
    return float((matrix @ matrix)[0, 0])


def plain_epoch(matrix: np.ndarray, steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        step(matrix)
    return time.perf_counter() - started


def recorded_epoch(matrix: np.ndarray, steps: int, recorder: Recorder, link: Link) -> float:
    started = time.perf_counter()
    for index in range(steps):
        assert link.may_enter(index + 1)
        start_ns = clock()
        loss = step(matrix)
        recorder.step(index, start_ns, clock(), loss)
    elapsed = time.perf_counter() - started
    return elapsed + _written(recorder)


def _written(recorder: Recorder) -> float:
    """Seconds of writing the block. It is outside the epoch's clock, but inside the run, so it counts here."""
    started = time.perf_counter()
    recorder.write_steps(0)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
