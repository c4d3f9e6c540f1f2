"""One check of the audit: what was measured, what it should be, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval

Verdict = Literal["holds", "fails", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A row of the table `audit`."""

    check: str
    subject: str
    value: float = math.nan
    lo: float = math.nan
    hi: float = math.nan
    unit: str = "1"
    truth: float = math.nan
    """What the value must be; NaN where there is only a limit."""
    limit: float = math.nan
    """With a truth: how far the interval may be from it. Without: the end of what is allowed."""
    verdict: Verdict
    meaning: str
    """In plain words, for this verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What each verdict means for the study."""

    holds: str
    fails: str
    unknown: str

    def of(self, verdict: Verdict) -> str:
        text: str = getattr(self, verdict)
        return text


def against_truth(
    check: str,
    subject: str,
    measured: Estimate,
    *,
    truth: float,
    limit: float,
    widest: float,
    unit: str,
    words: Words,
) -> Check:
    """It holds if the interval, widened by `limit`, has the truth in it.

    It is unknown without an interval, and where that reaches more than `widest` to a side: it would hold nearly anything.
    """
    lo, hi = measured.interval
    numbers = (measured.value, lo, hi, truth)
    verdict: Verdict
    if any(math.isnan(number) for number in numbers):
        verdict = "unknown"
    elif not lo - limit <= truth <= hi + limit:
        verdict = "fails"
    else:
        verdict = "unknown" if (hi - lo) / 2 > widest else "holds"
    return Check(
        check=check, subject=subject, value=measured.value, lo=lo, hi=hi, unit=unit, truth=truth,
        limit=limit, verdict=verdict, meaning=words.of(verdict),
    )  # fmt: skip


def against_limit(
    check: str,
    subject: str,
    measured: Estimate,
    *,
    limit: float,
    at_most: bool,
    unit: str,
    words: Words,
) -> Check:
    """It holds if the whole interval is on the allowed side of the limit, and fails if all of it is on the other side."""
    ends = sorted(
        measured.interval, reverse=not at_most
    )  # the one that is nearer to the allowed side first
    verdict: Verdict
    if any(math.isnan(number) for number in (measured.value, *ends)):
        verdict = "unknown"
    elif _allowed(ends[1], limit, at_most=at_most):
        verdict = "holds"
    else:
        verdict = "unknown" if _allowed(ends[0], limit, at_most=at_most) else "fails"
    return Check(
        check=check, subject=subject, value=measured.value, lo=measured.interval.lo,
        hi=measured.interval.hi, unit=unit, limit=limit, verdict=verdict, meaning=words.of(verdict),
    )  # fmt: skip


def _allowed(value: float, limit: float, *, at_most: bool) -> bool:
    return value <= limit if at_most else value >= limit


def exactly(value: float) -> Estimate:
    """Of a value that was counted rather than estimated."""
    return Estimate(value, Interval(value, value))


NOTHING = Estimate(math.nan, UNKNOWN)
"""Of what could not be measured."""
