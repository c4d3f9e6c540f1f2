"""The page of the audit, `results/audit.txt`: the verdict in plain words, which the report shows and a terminal prints."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from textwrap import fill

from ckptbench.audit.check import Check

WIDTH = 100
"""Letters in a line."""
HEADINGS = {
    "fails": "What fails",
    "unknown": "What could not be told",
    "holds": "What holds",
}
"""By verdict, in the order of the page."""


def page(checks: Sequence[Check], *, host: str, folder: str, seconds: float) -> str:
    counts = {verdict: sum(each.verdict == verdict for each in checks) for verdict in HEADINGS}
    lines = [fill(_verdict(counts), WIDTH), ""]
    for verdict, heading in HEADINGS.items():
        own = [each for each in checks if each.verdict == verdict]
        if own:
            lines += [heading, *(_item(_sentence(each)) for each in own), ""]
    when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    made = f"Made on {host}, {when}, in {seconds:.0f} s, with files in {folder}. A 95 % interval misses the truth in one of twenty cases by chance: if one check fails alone, run the audit again."
    return "\n".join([*lines, fill(made, WIDTH), ""])


def _verdict(counts: dict[str, int]) -> str:
    all_checks = sum(counts.values())
    if counts["fails"]:
        return f"Not as it is: {counts['fails']} of {all_checks} checks fail."
    if counts["unknown"]:
        return f"As far as it could be told: {counts['holds']} of {all_checks} checks hold, none fails, and {counts['unknown']} could not be told."
    return f"Yes: all {all_checks} checks hold."


def _item(sentence: str) -> str:
    return fill(sentence, WIDTH, initial_indent="- ", subsequent_indent="  ")


def _sentence(each: Check) -> str:
    return f"{each.check}, {each.subject}: {_measured(each)}. {each.meaning[:1].upper()}{each.meaning[1:]}."


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
    if "÷" in each.subject or each.subject.startswith("flushes"):
        return f"{value:.2f}"
    return f"{value:.1%}".replace("%", " %")
