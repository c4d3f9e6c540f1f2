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
class Question:
    """What a check asks, and what each verdict means for the study."""

    check: str
    subject: str
    unit: str = "1"
    limit: float
    holds: str
    fails: str
    unknown: str = "too noisy to tell: close other programs and run the audit again"

    def truth(self, truth: float, measured: Estimate, *, widest: float) -> Check:
        """It holds if the interval, widened by `limit`, has the truth in it.

        It is unknown without an interval, and where that reaches more than `widest` to a side: it would hold nearly anything.
        """
        lo, hi = measured.interval
        if any(math.isnan(number) for number in (measured.value, lo, hi, truth)):
            return self._told("unknown", measured, truth)
        if not lo - self.limit <= truth <= hi + self.limit:
            return self._told("fails", measured, truth)
        return self._told("unknown" if (hi - lo) / 2 > widest else "holds", measured, truth)

    def at_most(self, measured: Estimate) -> Check:
        """It holds if the whole interval is within the limit, and fails if all of it is beyond."""
        return self._limited(measured, sign=1)

    def at_least(self, measured: Estimate) -> Check:
        """The same with the limit below."""
        return self._limited(measured, sign=-1)

    def _limited(self, measured: Estimate, *, sign: int) -> Check:
        allowed = [sign * end <= sign * self.limit for end in measured.interval]
        if any(math.isnan(number) for number in (measured.value, *measured.interval)):
            return self._told("unknown", measured)
        if all(allowed):
            return self._told("holds", measured)
        return self._told("unknown" if any(allowed) else "fails", measured)

    def _told(self, verdict: Verdict, measured: Estimate, truth: float = math.nan) -> Check:
        meanings = {"holds": self.holds, "fails": self.fails, "unknown": self.unknown}
        lo, hi = measured.interval
        return Check(
            check=self.check,
            subject=self.subject,
            value=measured.value,
            lo=lo,
            hi=hi,
            unit=self.unit,
            truth=truth,
            limit=self.limit,
            verdict=verdict,
            meaning=meanings[verdict],
        )


def exactly(value: float) -> Estimate:
    """Of a value that was counted rather than estimated. NaN: it could not be."""
    return Estimate(value, UNKNOWN if math.isnan(value) else Interval(value, value))


NOTHING = exactly(math.nan)
"""Of what could not be measured."""
