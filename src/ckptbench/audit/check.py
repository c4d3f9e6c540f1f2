"""One check of the audit: what was measured, what it should be, and the verdict; the table of all, and the lines that are printed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval
from ckptbench.analysis.tables.schema import Column, Table

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
    unknown: str = "inconclusive (noise): close other programs and run the audit again"

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


AUDIT = Table(
    "audit",
    "One row per check of `make audit`, in the order of the checks.",
    ("number",),
    (
        Column("number", "integer", "1", "number of the check, from 1"),
        Column("check", "text", "", "files, calibration, A/A, fsync, cold reads or disturbed runs"),
        Column("subject", "text", "", "what was measured"),
        Column("value", "number", "the row's", "as measured; missing if that was impossible"),
        Column("lo", "number", "the row's", "lower end of its 95 % interval"),
        Column("hi", "number", "the row's", "upper end of its interval"),
        Column("unit", "text", "", "of value, lo, hi, truth and limit: s, or 1 for ratios and shares"),
        Column("truth", "number", "the row's", "what the value must be"),
        Column("limit", "number", "the row's", "allowed distance of the interval from the truth, or without an interval the allowed value"),
        Column("verdict", "text", "", "holds, fails or unknown"),
        Column("meaning", "text", "", "what the verdict means for the study"),
    ),
)  # fmt: skip


def audit(checks: Sequence[Check]) -> pd.DataFrame:
    return AUDIT.rows(
        {"number": number, **dataclasses.asdict(check)}
        for number, check in enumerate(checks, start=1)
    )


def in_words(checks: Sequence[Check]) -> str:
    """A line with the number of checks by verdict, and one for each check: first those that fail."""
    verdicts = ("fails", "unknown", "holds")
    fails, unknown, holds = (sum(each.verdict == one for each in checks) for one in verdicts)
    total = f"{holds} of {len(checks)} checks hold, {fails} fail, {unknown} unknown."
    ordered = sorted(checks, key=lambda each: verdicts.index(each.verdict))
    return "\n".join([total, *map(_line, ordered)])


def _line(each: Check) -> str:
    meaning = f"{each.meaning[:1].upper()}{each.meaning[1:]}"
    return f"{each.verdict:8} {each.check}, {each.subject}: {_measured(each)}. {meaning}."


def _measured(each: Check) -> str:
    if math.isnan(each.value):
        return "not measured"
    text = _number(each.value, each)
    if each.lo < each.hi:
        text += f" [{_number(each.lo, each)} to {_number(each.hi, each)}]"
    if not math.isnan(each.truth):
        return f"{text}; the truth is {_number(each.truth, each)}"
    return f"{text}; the limit is {_number(each.limit, each)}"


def _number(value: float, each: Check) -> str:
    if each.unit == "s":
        return f"{1000 * value:.2f} ms"
    if "÷" in each.subject:
        return f"{value:.2f}"
    return f"{value:.1%}".replace("%", " %")
