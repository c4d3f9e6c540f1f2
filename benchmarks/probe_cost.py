"""What `ckptbench-probe` costs a training. The promises: at most 0.5 % of a step of 1 ms, and at most 1 % of the stall of a save of 100 ms or more.

Both are measured in one process, with and without the probe in turn, in random order:

- steps of a small network, in which the processor's caches have forgotten the probe each time, and empty steps of an optimizer, in which they
  have not; a second after the first update, when backward passes are counted no more;
- `torch.save` of a state, called as it is, and as the probe wraps it.

Two turns that follow one another are a pair. Other programs disturb single turns, so what is told is the median over pairs.

It needs PyTorch's environment, and `make benchmarks` starts it there:

    PYTHONPATH=probe/src .environments/pytorch/bin/python benchmarks/probe_cost.py
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ckptbench_probe.arm import arm
from ckptbench_probe.variables import FOLDER

arm()  # before PyTorch is imported, as `sitecustomize` does

import numpy as np  # noqa: E402
import torch  # noqa: E402
from ratio import median_interval  # noqa: E402
from torch import nn  # noqa: E402

STEP_PROMISE = 1.005
SAVE_PROMISE = 1.01


WARM_STEPS = 2
"""At the start of a turn, that are not timed."""


class Hooked:
    """Turns the probe's hooks of optimizers on and off."""

    def __init__(self) -> None:
        own = sys.modules["torch.optim.optimizer"]
        self._hooks = (own._global_optimizer_pre_hooks, own._global_optimizer_post_hooks)
        self._probes = tuple(dict(hooks) for hooks in self._hooks)
        assert all(self._probes), "the hooks are registered when the first optimizer is made"

    def turn(self, on: bool) -> None:
        for hooks, probes in zip(self._hooks, self._probes, strict=True):
            hooks.clear()
            hooks.update(probes if on else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1500, help="of turns with and without hooks")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--saves", type=int, default=60, help="pairs of saves")
    parser.add_argument("--megabytes", type=int, default=128, help="of the state that is saved")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        os.environ[FOLDER] = str(Path(folder, "seen"))
        step = training(width=128)
        until_no_backward_is_counted(step)
        cost_s = report_steps("a step of a small network", step, options.pairs, options.steps)
        print(
            f"in a training an update costs {1e6 * cost_s:.2f} us: {cost_s / 1e-3:.2%} of a step of 1 ms; promised: at most {STEP_PROMISE - 1:.1%}"
        )
        report_steps("an empty step", empty(), options.pairs, 10 * options.steps)
        report_saves(Path(folder), options.saves, options.megabytes)


def until_no_backward_is_counted(step: Callable[[], None]) -> None:
    counting = torch.autograd.backward
    while torch.autograd.backward is counting:
        step()


def training(width: int) -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    data = torch.randn(64, width)

    def step() -> None:
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    return step


def empty() -> Callable[[], None]:
    parameter = nn.Parameter(torch.zeros(1))
    return torch.optim.SGD([parameter], lr=0.1).step  # without a gradient it does nothing


def report_steps(name: str, step: Callable[[], None], pairs: int, steps: int) -> float:
    """Seconds that a step takes longer with hooks."""
    hooked, draw = Hooked(), random.Random(1)
    found: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(pairs):
        for on in draw.sample([True, False], 2):
            hooked.turn(on)
            found[on].append(timed(step, steps))
    hooked.turn(True)
    return report(name, found)


def timed(step: Callable[[], None], steps: int) -> float:
    """Seconds of a step, the median."""
    for _ in range(WARM_STEPS):
        step()
    moments = [time.perf_counter()]
    for _ in range(steps):
        step()
        moments.append(time.perf_counter())
    return statistics.median(after - before for before, after in itertools.pairwise(moments))


def report_saves(folder: Path, pairs: int, megabytes: int) -> None:
    state = {f"layer{number}": torch.randn(megabytes * 2**18 // 64) for number in range(64)}
    wrapped, draw = torch.serialization.save, random.Random(2)
    plain = wrapped.__wrapped__
    found: dict[bool, list[float]] = {True: [], False: []}
    used: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(pairs):
        for on in draw.sample([True, False], 2):
            path = folder / "state.pt"
            os.sync()
            begun, begun_thread = time.perf_counter(), time.thread_time()
            (wrapped if on else plain)(state, path)
            used[on].append(time.thread_time() - begun_thread)
            found[on].append(time.perf_counter() - begun)
            path.unlink()
    stall_s = statistics.median(found[False])
    report(f"torch.save of {megabytes} MB, time that passes", found)
    cost_s = report(f"torch.save of {megabytes} MB, time of the processor", used)
    print(
        f"a save costs {1e3 * cost_s:.2f} ms: {cost_s / stall_s:.2%} of its {1e3 * stall_s:.0f} ms; promised: at most {SAVE_PROMISE - 1:.0%}"
    )


def report(name: str, found: dict[bool, list[float]]) -> float:
    """Seconds of difference. Tells the median of the ratios of pairs, with the interval that holds it in 95 % of bootstrap samples."""
    ratios = [one / other for one, other in zip(found[True], found[False], strict=True)]
    low, high = median_interval(np.asarray(ratios))
    with_s, without_s = statistics.median(found[True]), statistics.median(found[False])
    print(
        f"{name}: {1e6 * without_s:,.1f} us without, {1e6 * with_s:,.1f} us with, difference {1e6 * (with_s - without_s):,.2f} us;"
        f" ratio {statistics.median(ratios):.4f} [{low:.4f}, {high:.4f}]"
    )
    return statistics.median(
        one - other for one, other in zip(found[True], found[False], strict=True)
    )


if __name__ == "__main__":
    main()
