"""For a log that no form fits: a line that looks like one of a step, and an expression that reads it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.events import read_lines
from ckptbench.decide.training_log.facts import Facts, facts_of
from ckptbench.decide.training_log.forms import NUMBER, own_form
from ckptbench.decide.training_log.lines import CLOCK
from ckptbench.matrix.shown import show

STEP = re.compile(r"(?<!\w)(\w*(?:step|iteration|iter|update|batch)(?:e?s)?)\b(\W{1,12})(\d{1,12})(?!\d|[.:]\d)", re.IGNORECASE)  # fmt: skip
"""A name of a count, and the count."""
LEFT = 20
"""Characters before it that are shown."""
OTHER_TIME = r"(?!\w*(?:remain|eta|data|load|per_s|samples|tok))"
DURATION = re.compile(rf"(?<![\w/]){OTHER_TIME}(\w*(?:time|took|elapsed|duration|latency|sec|ms)\w*|\w+(?=\W{{1,12}}[\d.]+ ?ms\b))(\W{{1,12}})({NUMBER})(?![\d.:]| day) ?(ms\b)?", re.IGNORECASE)  # fmt: skip
CLOCKED = re.compile(
    rf"(?<![\w/]){OTHER_TIME}(\w*(?:elapsed|time)\w*)(\W{{1,12}}){CLOCK.pattern}", re.IGNORECASE
)
MILLISECONDS = re.compile(r"(?:^|_)(?:ms|msec|milliseconds)(?:_|$)", re.IGNORECASE)
OF_A_STEP = re.compile(r"step|iter|sec|ms", re.IGNORECASE)
ENOUGH = 3
"""Lines that count up."""
MOST_LINES = 20_000
"""Of a log, that are looked at."""
NEAR = 0.3
"""By how much a step time may differ from that by the dates of lines."""


def suggestion(lines: Sequence[str]) -> str:
    """The line, and the expression, which was tried on the log. Empty where none was found that reads it."""
    lines = lines[:MOST_LINES]
    for name, line, match in _counts(lines):
        step = rf"\b{re.escape(name)}\W+(?P<step>\d+)"
        plain = _read(step, lines)
        if plain is None:
            continue
        by_dates = plain.step.value if plain.step else None
        times = (rf"{step}.*\b{time}" for time in _times(line[match.end() :], lines))
        pattern = next((each for each in times if _is_near(_read(each, lines), by_dates)), step)
        shown = line[max(match.start() - LEFT, 0) :].strip()
        return f"{show(shown)} looks like the line of a step: try --log-pattern '{pattern}'"
    return ""


def _counts(lines: Sequence[str]) -> Iterator[tuple[str, str, re.Match[str]]]:
    """Names of numbers that rise from line to line, those in most lines first; each with its second line, as the first may lack what others have."""
    found: dict[str, list[tuple[str, re.Match[str]]]] = defaultdict(list)
    for line in lines:
        for match in STEP.finditer(line):
            found[match[1]].append((line, match))
    for name, matches in sorted(found.items(), key=lambda one: -len(one[1])):
        if _rises([float(match[3]) for _, match in matches]):
            yield name, *matches[1]


def _times(rest: str, lines: Sequence[str]) -> Iterator[str]:
    """Expressions of the times in the rest of a line: how long a step takes, or when the line was printed."""
    found = sorted(DURATION.finditer(rest), key=lambda match: not OF_A_STEP.search(match[1]))
    for match in found:
        name = rf"{re.escape(match[1])}\W+"
        unit = "ms" if MILLISECONDS.search(match[1]) or match[4] == "ms" else "s"
        numbers = [
            float(number) for line in lines for number in re.findall(rf"\b{name}({NUMBER})", line)
        ]
        if not _rises(numbers, always=True):
            yield rf"{name}(?P<step_{unit}>[\d.]+)"
        elif unit == "s":
            yield rf"{name}(?P<time>[\d.]+)"
    for match in CLOCKED.finditer(rest):
        yield rf"{re.escape(match[1])}\W+(?P<time>[\d:]+)"


def _rises(numbers: Sequence[float], *, always: bool = False) -> bool:
    rises = sum(after > before for before, after in pairwise(numbers))
    return rises >= (len(numbers) - 1 if always and len(numbers) >= ENOUGH else ENOUGH - 1)


def _read(pattern: str, lines: Sequence[str]) -> Facts | None:
    try:
        facts = facts_of(read_lines(lines, own_form([pattern]), "it"))
    except DataError:
        return None
    return facts if facts.steps >= ENOUGH else None


def _is_near(facts: Facts | None, by_dates: float | None) -> bool:
    if facts is None or facts.step is None:
        return False
    return by_dates is None or abs(facts.step.value - by_dates) <= NEAR * by_dates
