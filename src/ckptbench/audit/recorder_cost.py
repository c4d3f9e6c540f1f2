"""What the recorder and the question whether to stop cost a training loop. The promise: at most 0.5 %.

The loop is a small copy of the real one. A step computes in NumPy for about a millisecond. This is shorter than a step of
any framework, so the recorder weighs more here than in a study. The loop runs with and without the work of the recorder:
the question to the launcher whether to stop, the two clock reads, the note of the step, and the writing of the block
after each epoch. The two loops take turns epoch by epoch, in random order, so that a machine that changes its speed
affects both. Have NumPy compute in one thread: the waits in a pool of threads are noisier than what is measured here.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.analysis.cost.statistics import Estimate, Interval
from ckptbench.audit.check import Check, Words, against_limit
from ckptbench.audit.ratio import Ratio
from ckptbench.machine.clock import clock
from ckptbench.runs.recorder import Recorder
from ckptbench.world.control import ControlServer
from ckptbench.world.link import Link
from ckptbench.world.seats import seats_of

PROMISE = 0.005
Matrix = NDArray[np.float32]


def measure(
    folder: Path, *, pairs: int = 300, steps: int = 50, size: int = 400
) -> list[tuple[float, float]]:
    """Seconds of an epoch of `steps` steps with and without the recorder, `pairs` times. A step multiplies matrices of `size`.

    The trace is written into `folder`.
    """
    random = np.random.default_rng(0)
    matrix = random.standard_normal((size, size), np.float32)
    recorder = Recorder(folder / "trace-0.jsonl")
    server = ControlServer(seats_of(["here"]), host="127.0.0.1")
    server.serve()
    found = []
    # The line is closed first, whatever happens: a rank whose launcher is gone ends its process.
    with (
        closing(recorder),
        closing(server),
        closing(Link.open(server.address, server.token, rank=0, node="here")) as link,
    ):
        link.meet(rank=0, node="here", device="cpu")
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


def check(folder: Path, *, pairs: int = 120) -> Check:
    ratio = Ratio.of(measure(folder, pairs=pairs))
    return against_limit(
        "recorder",
        "what recording adds to a step of about a millisecond",
        Estimate(ratio.value - 1, Interval(ratio.lo - 1, ratio.hi - 1)),
        limit=PROMISE,
        at_most=True,
        unit="1",
        words=Words(
            holds="ckptbench itself does not weigh on the times; on longer steps even less",
            fails="recording costs more than promised: do not quote overheads of steps that take milliseconds",
            unknown="too noisy to tell: close other programs and run the audit again",
        ),
    )


def _step(matrix: Matrix) -> float:
    return float((matrix @ matrix)[0, 0])


def _plain(matrix: Matrix, steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        _step(matrix)
    return time.perf_counter() - started


def _recorded(matrix: Matrix, steps: int, recorder: Recorder, link: Link) -> float:
    started = time.perf_counter()
    for index in range(steps):
        link.may_enter(index + 1)
        start_ns = clock()
        loss = _step(matrix)
        recorder.step(index, start_ns, clock(), loss)
    elapsed = time.perf_counter() - started
    return elapsed + _written(recorder)


def _written(recorder: Recorder) -> float:
    """Seconds of writing the block. It is outside the epoch's clock, but inside the run, so it counts here."""
    started = time.perf_counter()
    recorder.write_steps(0)
    return time.perf_counter() - started
