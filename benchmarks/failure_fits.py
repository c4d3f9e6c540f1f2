"""How often the 95 % intervals that are fitted to a log of failures hold the truth.

Logs are drawn at random: Weibull gaps of a known shape and mean, over a fixed time. The exponential interval is counted too: it is right only
for k = 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ckptbench.analysis.cost.statistics import Interval
from ckptbench.decide.failure_log import Gaps
from ckptbench.decide.fits import fit

MEAN_HOURS = 5.0
SHAPES = (0.5, 0.7, 1.0, 1.5)
FAILURES = (15, 30, 100)
LOGS = 1000


def drawn(shape: float, failures: float, random: np.random.Generator) -> Gaps:
    """A log over the time in which this many failures are expected; at least one of them has come."""
    window, scale = failures * MEAN_HOURS, MEAN_HOURS / math.gamma(1 + 1 / shape)
    hours: list[float] = []
    while not hours:
        gap = scale * random.weibull(shape)
        while sum(hours) + gap <= window:
            hours.append(gap)
            gap = scale * random.weibull(shape)
    return Gaps(np.array(hours), window - sum(hours))


def coverage(
    shape: float, failures: float, logs: int, random: np.random.Generator
) -> dict[str, float]:
    """The part of the logs whose interval holds the truth, by the quantity; of mean and shape, where a Weibull distribution was fitted."""
    held: dict[str, list[bool]] = {"mean": [], "shape": [], "exponential mean": []}
    for _ in range(logs):
        found = fit(drawn(shape, failures, random))
        held["exponential mean"].append(_holds(found.mean_hours.interval, MEAN_HOURS))
        if found.weibull is not None:
            held["mean"].append(_holds(found.weibull.mean_hours.interval, MEAN_HOURS))
            held["shape"].append(_holds(found.weibull.shape.interval, shape))
    return {name: float(np.mean(own)) for name, own in held.items()}


def _holds(interval: Interval, truth: float) -> bool:
    return interval.lo <= truth <= interval.hi


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=LOGS, help="logs that each line draws")
    logs = parser.parse_args().logs
    random = np.random.default_rng(1)
    for shape in SHAPES:
        for failures in FAILURES:
            shares = coverage(shape, failures, logs, random)
            words = ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items())
            print(f"k = {shape}, {failures} failures expected: {words}", flush=True)


if __name__ == "__main__":
    main()
