"""Time limits that Snakemake reads otherwise than they are written.

Snakemake turns every text of a `runtime` into minutes before an executor sees it, and keeps no text: `120.0` becomes 2 minutes
(it counts as seconds), `150s` 2, `2-0` 2 (a subtraction). So its reader is watched, and such a text is refused.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import Any

from snakemake import resources, rules
from snakemake_interface_common.exceptions import WorkflowError

_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DECIMAL = re.compile(r"\d*\.\d*")
_UNITS = re.compile(r"(?:\d+(?:\.\d+)?\s*[dhms])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([dhms])")
_CLOCK = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")

_misread: dict[str, int] = {}
"""Texts of this process, with the minutes that they mean."""


def watch() -> None:
    """From now on notes what Snakemake misreads; nothing that it reads is changed."""
    if hasattr(resources, "Resource"):
        read = _watching(resources.Resource.parse_human_friendly)
        resources.Resource.parse_human_friendly = staticmethod(read)
    else:  # Snakemake 8, and the first versions of 9
        rules.infer_resources = _watching(rules.infer_resources)


def _watching(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def watching(name: str, value: object, *more: Any) -> Any:
        if name == "runtime" and isinstance(value, str):
            _note(value.strip("'\" "))
        return read(name, value, *more)

    return watching


def check() -> None:
    """Raises WorkflowError where a text was noted."""
    for text, minutes in _misread.items():
        raise WorkflowError(
            f"Snakemake does not read runtime={text!r} as {minutes} minutes: write runtime={minutes}, or one number with a unit "
            "that makes whole minutes (90m, 36h, 2d)."
        )


def minutes_meant(text: str) -> int | None:
    """Minutes, rounded up, where Snakemake would read others or none; None for every other text."""
    if text.isdecimal():
        return None
    if _DECIMAL.fullmatch(text) and text != ".":
        return math.ceil(float(text))
    if _UNITS.fullmatch(text):
        parts = _PART.findall(text)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
        return None if len(parts) == 1 and seconds % 60 == 0 else math.ceil(seconds / 60)
    if found := _CLOCK.fullmatch(text):
        return _clock_minutes(int(found["days"] or 0), found["clock"], found["days"] is not None)
    return None


def _clock_minutes(days: int, clock: str, with_days: bool) -> int:
    """As sbatch reads days-hours:minutes:seconds, hours:minutes:seconds and minutes:seconds."""
    numbers = [int(number) for number in clock.split(":")]
    units = (3600, 60, 1) if with_days or len(numbers) == 3 else (60, 1)
    seconds = sum(number * unit for number, unit in zip(numbers, units, strict=False))
    return math.ceil((86400 * days + seconds) / 60)


def _note(text: str) -> None:
    if (minutes := minutes_meant(text)) is not None:
        _misread[text] = minutes
