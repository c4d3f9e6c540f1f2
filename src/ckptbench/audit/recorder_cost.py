"""What the recorder and the question whether to stop cost a training loop. The promise: at most 0.5 %.

The loop is a small copy of the real one, with steps of about a millisecond of NumPy: shorter than those of any framework,
so the recorder weighs more here than in a study. Epochs with and without the work of the recorder take turns in random
order. Have NumPy compute in one thread: the waits in a pool of threads are noisier than what is measured here.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

from ckptbench.analysis.cost.statistics import Estimate, Interval
from ckptbench.audit.check import Check, Question
from ckptbench.common.clock import clock
from ckptbench.runs.recorder import Recorder
from ckptbench.world.control import ControlServer
from ckptbench.world.link import Link
from ckptbench.world.ranks import assign_ranks

PROMISE = 0.005
Matrix = NDArray[np.float32]


def check(folder: Path, *, pairs: int = 120) -> Check:
    """The median over pairs of epochs, with its bootstrap interval."""
    ratios = [recorded / plain - 1 for recorded, plain in measure(folder, pairs=pairs)]
    interval = bootstrap((ratios,), np.median, method="percentile", rng=0).confidence_interval
    question = Question(
        check="recorder",
        subject="what recording adds to a step of about a millisecond",
        limit=PROMISE,
        holds="ckptbench itself does not weigh on the times; on longer steps even less",
        fails="recording costs more than promised: do not quote overheads of steps that take milliseconds",
    )
    return question.at_most(Estimate(float(np.median(ratios)), Interval(*map(float, interval))))


def measure(
    folder: Path, *, pairs: int = 300, steps: int = 50, size: int = 400
) -> list[tuple[float, float]]:
    """Seconds of an epoch of `steps` steps with and without the recorder, `pairs` times. A step multiplies matrices of `size`.

    The trace is written into `folder`.
    """
    random = np.random.default_rng(0)
    matrix = random.standard_normal((size, size), np.float32)
    recorder = Recorder(folder / "trace-0.jsonl")
    server = ControlServer(assign_ranks(["here"]), host="127.0.0.1")
    server.serve()
    found = []
    # The line is closed first, whatever happens: a rank whose launcher is gone ends its process.
    with (
        closing(recorder),
        closing(server),
        closing(Link.open(server.address, server.token, rank=0, node="here")) as link,
    ):
        link.rendezvous(rank=0, node="here", device="cpu")
        _plain(matrix, steps), _recorded(matrix, steps, recorder, link)
        for _ in range(pairs):
            if random.integers(2):
                recorded = _recorded(matrix, steps, recorder, link)
                plain = _plain(matrix, steps)
            else:
                plain = _plain(matrix, steps)
                recorded = _recorded(matrix, steps, recorder, link)
            found.append((recorded, plain))
    return found


def _step(matrix: Matrix) -> float:
    return float((matrix @ matrix)[0, 0])


def _plain(matrix: Matrix, steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        _step(matrix)
    return time.perf_counter() - started


def _recorded(matrix: Matrix, steps: int, recorder: Recorder, link: Link) -> float:
    """With the writing of the block, which is outside the epoch's clock but inside the run."""
    started = time.perf_counter()
    for index in range(steps):
        link.may_enter(index + 1)
        start_ns = clock()
        loss = _step(matrix)
        recorder.step(index, start_ns, clock(), loss)
    recorder.write_steps(0)
    return time.perf_counter() - started
