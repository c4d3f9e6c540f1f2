"""What a strategy costs that its own run does not show: only a run without checkpoints does."""

from __future__ import annotations

import math

import pandas as pd

from ckptbench.analysis.cost.estimates import IN_RUN, PAIRED
from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate
from ckptbench.analysis.cost.statistics import Interval as Ends
from ckptbench.analysis.tables.schema import Row
from ckptbench.matrix.interval import Interval

NOT_SLOWER = Estimate(math.nan, UNKNOWN)


def with_slowdown(row: Row, overhead: Row | None, step_s: float) -> Row:
    """The row of `strategies`. Where every step ran beside a save, only the baseline shows what these steps took longer: what is certain to be above zero, and
    holds no wait of the next save, which the model adds."""
    if pd.notna(row["slowdown_s"]) or row["waited"] > 0:
        return row
    if overhead is None or not overhead["paired_lo"] > 0:
        return row
    between_s = step_s * Interval.parse(row["interval"]).steps(int(overhead["steps_per_epoch"]))
    return {
        **row,
        **{
            f"slowdown_s{end}": overhead[f"{PAIRED}{end}"] * between_s - row["stall_s"]
            for end in ("", "_lo", "_hi")
        },
    }


def slower_everywhere(overhead: Row | None) -> Estimate:
    """By how much a strategy makes steps longer that no save is beside, from its row of `overhead`: what the run without checkpoints shows and the run itself
    does not. NaN where the two estimates agree, or the first is lower."""
    if overhead is None or pd.isna(overhead["agree"]) or overhead["agree"]:
        return NOT_SLOWER
    (paired, *paired_ends), (inside, *inside_ends) = (
        [1 + overhead[f"{name}{end}"] for end in ("", "_lo", "_hi")] for name in (PAIRED, IN_RUN)
    )
    if paired < inside:
        return NOT_SLOWER
    # The ends of the one meet the opposite ends of the other.
    apart = [
        math.hypot((own - paired) / paired, (other - inside) / inside)
        for own, other in zip(paired_ends, reversed(inside_ends), strict=True)
    ]
    ratio = paired / inside
    return Estimate(ratio, Ends(ratio * (1 - apart[0]), ratio * (1 + apart[1])))
