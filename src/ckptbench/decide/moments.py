"""Points in time as people write them: seconds, or dates and times in ISO 8601."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

SECONDS = "in seconds"
LOCAL = "without a time zone"
ZONED = "with a time zone"
NOW = "now"
LARGEST_SECONDS = 1e11
"""Since 1970, in the year 5138: larger numbers are milliseconds, or dates without dashes."""
HELP = 'use a number of seconds, or a time as in "2026-01-31T08:00:00Z"'


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time. Two are compared only if both are of the same clock."""

    seconds: float
    """Since the beginning of the clock. A time without a zone counts as UTC: in the hour that autumn repeats, times lie up to an hour too close."""
    clock: str
    """SECONDS, LOCAL or ZONED."""
    written: str
    """As an error shows it."""


def moment(value: object) -> Moment:
    """The moment that a YAML file or a cell of a CSV file says. Raises ValueError, with what is allowed."""
    if isinstance(value, str):
        value = _read(value.strip())
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return Moment(value.replace(tzinfo=UTC).timestamp(), LOCAL, value.isoformat())
        return Moment(value.timestamp(), ZONED, value.isoformat())
    if type(value) not in (int, float) or not abs(value) < LARGEST_SECONDS:  # type: ignore[arg-type]
        raise ValueError(HELP)
    return Moment(float(value), SECONDS, f"{value:.15g}")  # type: ignore[arg-type]


def now(clock: str) -> Moment:
    """The time of this clock. Raises ValueError where it counts seconds from a start that is not known."""
    if clock == SECONDS:
        raise ValueError("`now` is a date, and seconds are none: say how many, or write dates")
    at = datetime.now(UTC if clock == ZONED else None)
    return replace(moment(at.replace(microsecond=0)), written=NOW)


def _read(text: str) -> float | datetime:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(HELP) from None
