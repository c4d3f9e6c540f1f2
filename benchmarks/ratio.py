"""How benchmarks report their result: the ratio of two times that were measured in turn, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 10_000


def report(
    pairs: Sequence[tuple[float, float]], first: str, second: str, *, promise: float
) -> None:
    """Print the median of first / second over the pairs, its bootstrap 95 % interval, and the promise. Needs NumPy alone."""
    seconds = np.asarray(pairs)
    ratios = seconds[:, 0] / seconds[:, 1]
    drawn = np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios)))
    lo, hi = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    one, other = np.median(seconds, axis=0)
    print(f"  {first}: median {one:.6g} s; {second}: median {other:.6g} s")
    print(
        f"  {first} / {second} = {np.median(ratios):.4f}, 95 % interval {lo:.4f} to {hi:.4f}, "
        f"{len(pairs)} pairs; promised: at most {promise}"
    )
