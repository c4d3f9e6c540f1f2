"""The faults of a log of failures, all at once, and the forms of time that people write and a log cannot be read in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product

from ckptbench.decide.moments import LOCAL, Moment

SHOWN_LINES = 3
"""Lines that are named of each kind of fault. The others are counted."""
PROBED = 50
"""Times that a form is tried on first."""
DATES = {
    "%m/%d/%Y": "month/day/year", "%d/%m/%Y": "day/month/year", "%Y/%m/%d": "year/month/day", "%d.%m.%Y": "day.month.year",
    "%m-%d-%Y": "month-day-year", "%d-%m-%Y": "day-month-year", "%m/%d/%y": "month/day/year", "%d/%m/%y": "day/month/year",
    "%d-%b-%Y": "day-month-year", "%d %b %Y": "day month year", "%b %d, %Y": "month day, year", "%b %d %Y": "month day year",
    "%a %b %d %Y": "weekday month day year", "%Y-%m-%d": "year-month-day",
}  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
FORMS = {
    **{date + clock: name for (date, name), clock in product(DATES.items(), CLOCKS)},
    "%a %b %d %H:%M:%S %Y": "weekday month day time year",
}


@dataclass(slots=True)
class Faults:
    """The faults of one file by kind, each with the lines that have it."""

    path: str
    first: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By kind: the line that has it first, and its message."""
    lines: dict[str, list[int]] = field(default_factory=dict)

    def add(self, kind: str, line: int, message: str) -> None:
        self.first.setdefault(kind, (line, message))
        self.lines.setdefault(kind, []).append(line)

    @property
    def count(self) -> int:
        return sum(map(len, self.lines.values()))

    def text(self) -> str:
        """A line for each kind, in the order of the file: the first place, what to do, and the other places."""
        rows = sorted((line, kind, message) for kind, (line, message) in self.first.items())
        return "\n".join(
            f"{self.path}: line {line}: {message}{_others(self.lines[kind][1:])}"
            for line, kind, message in rows
        )


def _others(lines: Sequence[int]) -> str:
    if not lines:
        return ""
    shown = [str(line) for line in lines[:SHOWN_LINES]]
    if more := len(lines) - len(shown):
        shown.append(f"{more:,} more")
    listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f" (also line{'s' if len(lines) > 1 else ''} {listed})"


def likely_forms(texts: Sequence[str]) -> list[str]:
    """The forms in which most of these times may be written: several where day and month cannot be told apart."""
    read = {form: sum(in_form(text, form) is not None for text in texts[:PROBED]) for form in FORMS}
    most = max(read.values(), default=0)
    return [form for form, count in read.items() if count == most] if most else []


def in_form(text: str, form: str) -> Moment | None:
    """The time in this form, without a zone; None if it is not written so."""
    try:
        at = datetime.strptime(text.strip(), form)
    except ValueError:
        return None
    return Moment(at.replace(tzinfo=UTC).timestamp(), LOCAL, text.strip())


def rewritten(text: str, forms: Iterable[str]) -> str:
    """How to write the time so that it can be read, for each form in which it may be written. Empty where it is in none."""
    ways: dict[str, str] = {}
    for form in forms:
        if (at := in_form(text, form)) is not None:
            written = datetime.fromtimestamp(at.seconds, UTC).replace(tzinfo=None).isoformat()
            ways.setdefault(written, FORMS[form])
    if not ways:
        return ""
    return ": write it as " + ", or as ".join(
        f'"{written}"' + (f" if it is {name}" if len(ways) > 1 else "")
        for written, name in ways.items()
    )
