"""How benchmarks report their result: the ratio of two times that were measured in turn, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

from ckptbench.audit.ratio import Ratio


def report(
    pairs: Sequence[tuple[float, float]], first: str, second: str, *, promise: float
) -> None:
    """Print the median of first / second over the pairs, its bootstrap 95 % interval, and the promise."""
    ratio = Ratio.of(pairs)
    print(f"  {first}: median {ratio.medians[0]:.6g} s; {second}: median {ratio.medians[1]:.6g} s")
    print(
        f"  {first} / {second} = {ratio.value:.4f}, 95 % interval "
        f"{ratio.lo:.4f} to {ratio.hi:.4f}, {len(pairs)} pairs; promised: at most {promise}"
    )
