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
OPPOSITE = {"": "", "_lo": "_hi", "_hi": "_lo"}
"""The ends of an interval, each with the end of what is taken away from it."""


def with_slowdown(row: Row, overhead: Row | None, step_s: float) -> Row:
    """The row of `strategies`, with what only the baseline shows of the steps after one save.

    A blocking strategy runs no thread after its save: steps that are longer then are what the save leaves behind, as cold caches.
    Where every step ran beside a save in the background, all that is longer is the slowdown: if it is certain to be above zero, and
    holds no wait of the next save, which the model adds.
    """
    if overhead is None:
        return row
    between_s = step_s * Interval.parse(row["interval"]).steps(int(overhead["steps_per_epoch"]))
    if row["blocking"]:
        more = _more_than_in_run(overhead)
    elif pd.isna(row["slowdown_s"]) and not row["waited"] > 0 and overhead["paired_lo"] > 0:
        stall = row["stall_s"] / between_s
        more = {end: overhead[f"{PAIRED}{end}"] - stall for end in OPPOSITE}
    else:
        return row
    known_s: float = 0.0 if pd.isna(row["slowdown_s"]) else row["slowdown_s"]
    return {**row, **{f"slowdown_s{end}": known_s + part * between_s for end, part in more.items()}}


def _more_than_in_run(overhead: Row) -> dict[str, float]:
    """The part of a training that the baseline shows and the run itself does not, and its ends. Empty where the two agree."""
    if not _shows_more(overhead):
        return {}
    return {
        end: overhead[f"{PAIRED}{end}"] - overhead[f"{IN_RUN}{opposite}"]
        for end, opposite in OPPOSITE.items()
    }


def _shows_more(overhead: Row) -> bool:
    """Whether the baseline shows more than the run itself, for certain."""
    differ = bool(pd.notna(overhead["agree"]) and not overhead["agree"])
    return differ and bool(overhead[PAIRED] > overhead[IN_RUN])


def slower_everywhere(overhead: Row | None) -> Estimate:
    """By how much a strategy that goes on in the background makes steps longer that no save is beside, from its row of `overhead`: what
    the run without checkpoints shows and the run itself does not. NaN where the two estimates agree, or the first is lower."""
    if overhead is None or not _shows_more(overhead):
        return NOT_SLOWER
    (paired, *paired_ends), (inside, *inside_ends) = (
        [1 + overhead[f"{name}{end}"] for end in ("", "_lo", "_hi")] for name in (PAIRED, IN_RUN)
    )
    # The ends of the one meet the opposite ends of the other.
    apart = [
        math.hypot((own - paired) / paired, (other - inside) / inside)
        for own, other in zip(paired_ends, reversed(inside_ends), strict=True)
    ]
    ratio = paired / inside
    return Estimate(ratio, Ends(ratio * (1 - apart[0]), ratio * (1 + apart[1])))
