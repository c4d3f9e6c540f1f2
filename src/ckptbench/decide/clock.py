"""Points in time as people and programs write them: seconds, or dates and times in ISO 8601."""

from __future__ import annotations

from datetime import date, datetime, time

LARGEST_SECONDS = 1e11
"""Since 1970, in the year 5138: larger numbers are milliseconds, or dates without dashes."""
HELP = 'use a number of seconds, or a time as in "2026-01-31T08:00:00Z"'


def seconds_of(value: object) -> float:
    """Seconds since 1970, or the number of seconds that is written. A date without a time zone is of this machine's.

    `value` is what a YAML file or a cell of a CSV file says. Raises ValueError with what is allowed.
    """
    try:
        if isinstance(value, str):
            value = _read(value.strip())
        if isinstance(value, date):
            at = value if isinstance(value, datetime) else datetime.combine(value, time())
            return at.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(HELP) from None
    if type(value) not in (int, float) or not abs(value) < LARGEST_SECONDS:  # type: ignore[arg-type]
        raise ValueError(HELP)
    return float(value)  # type: ignore[arg-type]


def _read(text: str) -> float | datetime:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text.replace("/", "-"))
