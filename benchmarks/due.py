"""What `ckptbench_probe.Interval` loses in two real trainings, which tell it no costs, beside intervals that are fixed.

Each block trains once with it, once without saves, and once with each fixed interval, in random order: these are the one that it chose last in a
first run, and its multiples. The loss is that of the periods between saves as they were measured, under failures at any moment: a period of L
seconds takes (e^(λL) - 1) / λ on average until it passes, and e^(λg) as long where its version lags by g (`ckptbench.decide.formulas`).

    .environments/pytorch/bin/python benchmarks/due.py
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[1] / "tests" / "study" / "probe_due.py"
FACTORS = (0.35, 0.6, 0.8, 1.0, 1.3, 1.7, 2.8)
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
    skew = sum((one["ended_s"] - one["begun_s"]) / one["steps"] / one["step_s"] for one in runs[NEVER]) / len(runs[NEVER])  # fmt: skip
    losses = {every: loss(done, mtbf_s, skew) for every, done in runs.items() if every != NEVER}
    saves = sum(len(one["saves"]) for one in runs[0]) / len(runs[0])
    print(f"{way}, a failure every {mtbf_s:g} s on average, {len(runs[0])} runs each:")
    for every in sorted(set(losses) - {0}):
        print(f"  every {every:>5} steps loses {losses[every]:.2%}")
    best = min(set(losses) - {0}, key=lambda every: losses[every])
    print(f"  Interval ({saves:.0f} saves) loses {losses[0]:.2%}: {losses[0] / losses[best]:.3f} times the best of these, {best} steps; promised: at most {PROMISE}")  # fmt: skip


def loss(done: list[dict[str, Any]], mtbf_s: float, skew: float) -> float:
    """Over all of these runs. `skew`: a mean step, in median ones, where nothing is saved."""
    useful_s = expected_s = 0.0
    for one in done:
        step_s = one["step_s"] * skew
        begun, started_s, finished_s = 0, one["begun_s"], one["begun_s"]
        for step, start_s, end_s in one["saves"]:
            period_s, work_s = start_s - started_s, (step - begun) * step_s
            lag_s = max(work_s + finished_s - started_s - period_s, 0.0)
            useful_s += work_s
            expected_s += math.exp(lag_s / mtbf_s) * math.expm1(period_s / mtbf_s) * mtbf_s
            begun, started_s, finished_s = step, start_s, end_s
    return 1 - useful_s / expected_s


if __name__ == "__main__":
    main()
