"""What other failures than exponential ones would change: the goodput of costs that a user gives, by drawing failures.

Each line is another way in which failures come, all with the same mean number. The interval is the best one for exponential failures, and then the
best of those tried for these failures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.arrivals import Bursts, Times, exponential, weibull, with_bursts  # noqa: E402
from benchmarks.drawn_training import useful_part  # noqa: E402
from ckptbench.analysis.tables.grouping import records  # noqa: E402
from ckptbench.decide.given import read_given  # noqa: E402
from ckptbench.decide.model import Recovering, Saving, best, goodput  # noqa: E402
from ckptbench.decide.rates import read_rate  # noqa: E402

DAY, HOUR = 86_400.0, 3600.0
REPLICAS = 100
TRIED = np.geomspace(0.25, 4, 9)
BURSTS = Bursts(followed=0.3, within_s=600.0)


def main() -> int:
    options = _parse()
    row = records(read_given(options.costs))[options.row]
    rate = read_rate(ROOT / f"config/failures/{options.rate}.yaml")
    mean_s, until_s = rate.mean_gpu_hours * HOUR, options.days * DAY
    saving = Saving(
        stall_s=row["stall_s"], durable_s=row["durable_s"], slowdown_s=row["slowdown_s"]
    )
    recovering = Recovering(down_s=row["down_s"])
    failures_per_s = options.gpus / mean_s
    found = best(saving, recovering, failures_per_s, step_s=row["step_s"])
    print(f"{row['strategy']}, {row['recovery']}, {options.gpus:,} GPUs, {options.days:g} days, {rate.title}: a failure every {1 / failures_per_s / HOUR:.2f} h")  # fmt: skip
    print(f"formula: best interval {float(found.interval_s) / 60:.1f} min, goodput {100 * float(found.goodput):.2f} %")  # fmt: skip
    # The recovery that takes as long with failures that strike it as this one does without.
    unstruck = Recovering(down_s=np.log1p(failures_per_s * row["down_s"]) / failures_per_s)
    calm = goodput(found.interval_s, saving, unstruck, failures_per_s)
    print(f"formula, were no failure to strike while ranks recover: {100 * float(calm):.2f} %")
    print("failures | goodput at that interval, % | at the best of those tried, % | that one, min | seconds")  # fmt: skip
    for name, draw in _kinds(options.gpus, mean_s, until_s).items():
        begun = time.perf_counter()
        times = draw(np.random.default_rng(1))
        useful = [
            _goodput(times, until_s, float(found.interval_s) * factor, saving, recovering)
            for factor in (1.0, *TRIED)
        ]
        at, own = useful[0], max(useful, key=lambda each: each[0])
        interval_min = float(found.interval_s) / 60 * (1.0, *TRIED)[useful.index(own)]
        seconds = time.perf_counter() - begun
        print(f"{name} | {_shown(at)} | {_shown(own)} | {interval_min:.1f} | {seconds:.1f}")
    return 0


def _kinds(
    gpus: int, mean_s: float, until_s: float
) -> dict[str, Callable[[np.random.Generator], Times]]:
    shared = {"replicas": REPLICAS, "gpus": gpus, "mean_s": mean_s, "until_s": until_s}
    return {
        "exponential": lambda rng: exponential(rng, **shared),
        "Weibull, k = 0.7": lambda rng: weibull(rng, shape=0.7, **shared),
        "Weibull, k = 0.5": lambda rng: weibull(rng, shape=0.5, **shared),
        "30 % followed by another 10 min later": lambda rng: with_bursts(
            rng, exponential(rng, **shared), BURSTS, until_s
        ),
    }


def _goodput(
    times: Times, until_s: float, interval_s: float, saving: Saving, recovering: Recovering
) -> tuple[float, float]:
    useful = useful_part(
        times, until_s, interval_s, saving, recovering, rng=np.random.default_rng(2)
    )
    return float(useful.mean()), float(useful.std(ddof=1) / np.sqrt(len(useful)))


def _shown(useful: tuple[float, float]) -> str:
    return f"{100 * useful[0]:.2f} ± {196 * useful[1]:.2f}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", type=Path, default=ROOT / "config/costs-example.yaml")
    parser.add_argument("--row", type=int, default=0, help="which of its strategies and recoveries")
    parser.add_argument("--rate", default="llama3")
    parser.add_argument("--gpus", type=int, default=100_000)
    parser.add_argument("--days", type=float, default=30.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
