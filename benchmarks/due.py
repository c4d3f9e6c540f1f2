"""What `ckptbench_probe.Interval` loses in two real trainings, which tell it no costs, beside intervals that are fixed.

Each block trains once with it, once without saves, and once with each fixed interval, in random order: these are the one that it chose last in a
first run, and its multiples. A step takes what it takes in all of these runs where no save is near, and a save costs what the eight steps after
its start take longer than eight of the same run. So priced, the intervals that it took, its first ones included, are compared with the best of all fixed ones, under
failures at any moment, by the formula of `ckptbench.decide.formulas`: machines that others use too vary more from run to run than the losses differ.

    .environments/pytorch/bin/python benchmarks/due.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

SCRIPT = Path(__file__).resolve().parents[1] / "tests" / "study" / "probe_due.py"
FACTORS = (0.4, 1.0, 2.5)
NEVER = 10**9
WAYS = ("torch_save", "dcp_async")
"""Those of the script."""
PROMISE = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS, nargs="+", default=WAYS)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--width", type=int, default=256, help="of the network's eight layers")
    parser.add_argument("--mtbf", type=float, default=10.0, help="in seconds")
    options = parser.parse_args()
    for way in options.way:
        chosen = train(way, options, 0)["learned"]["interval"]
        every = sorted({max(round(chosen * factor), 1) for factor in FACTORS})
        runs: dict[int, list[dict[str, Any]]] = {one: [] for one in (0, NEVER, *every)}
        for block in range(options.blocks):
            for one in random.Random(block).sample(sorted(runs), len(runs)):
                runs[one].append(train(way, options, one))
        report(way, runs, options.mtbf)


def train(way: str, options: argparse.Namespace, every: int) -> dict[str, Any]:
    """What rank 0 or 1 says. `every`: steps between saves, 0 as `Interval` says."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2"] if way == "dcp_async" else []
    words = [way, f"{options.mtbf}s", options.steps, every, options.width]
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        done = subprocess.run(
            [sys.executable, *launcher, str(SCRIPT), *map(str, words)], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
    said: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line[0] == "{"))  # fmt: skip
    return {**said, "steps": options.steps}


def report(way: str, runs: dict[int, list[dict[str, Any]]], mtbf_s: float) -> None:
    done = [one for each in runs.values() for one in each]
    step_s = fmean(one["step_s"] for one in done)
    cost_s = fmean(cost for one in done for cost in one["costs_s"])
    finished_s = fmean(end_s - start_s for one in done for _, start_s, end_s in one["saves"])
    priced = partial(loss, step_s=step_s, cost_s=cost_s, finished_s=finished_s, mtbf_s=mtbf_s)
    print(f"{way}, a failure every {mtbf_s:g} s on average, {len(done)} runs: a step takes {step_s:.4f} s, a save costs {cost_s:.4f} s and is finished after {finished_s:.4f} s")  # fmt: skip
    best = min(range(1, max(2, int(mtbf_s / step_s))), key=lambda every: priced([every]))
    for every in sorted({*runs, best} - {0, NEVER}):
        print(f"  every {every:>5} steps loses {priced([every]):.2%}{', the best' if every == best else ''}")  # fmt: skip
    steps = [[0, *(save[0] for save in one["saves"])] for one in runs[0]]
    taken = [after - before for one in steps for before, after in itertools.pairwise(one)]
    print(f"  Interval ({len(taken)} saves, every {median(taken):g} steps) loses {priced(taken):.2%}: {priced(taken) / priced([best]):.3f} times the best; promised: at most {PROMISE}")  # fmt: skip


def loss(
    taken: list[int], *, step_s: float, cost_s: float, finished_s: float, mtbf_s: float
) -> float:
    """Of periods of so many steps, one after the other."""
    useful_s = expected_s = 0.0
    for steps in taken:
        work_s = steps * step_s
        period_s = max(work_s + cost_s, finished_s)
        lag_s = work_s + max(finished_s, cost_s) - period_s
        useful_s += work_s
        expected_s += math.exp(lag_s / mtbf_s) * math.expm1(period_s / mtbf_s) * mtbf_s
    return 1 - useful_s / expected_s


if __name__ == "__main__":
    main()
