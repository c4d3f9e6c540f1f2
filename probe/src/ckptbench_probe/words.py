"""Quantities as people read and write them."""

from __future__ import annotations

import argparse
import re
from typing import Callable

from ckptbench_probe.statistics import Seconds

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_UNIT_S = {name: size for size, name in _UNITS}
_TIME = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d)")
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def _short(number: float) -> str:
    """Three digits at most, and no fewer than two."""
    if number >= 99.5:
        return f"{number:,.0f}"
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}"


def duration(value_s: float) -> str:
    """Two units' worth before the next smaller one is left: `90 s` and `2.5 min`."""
    sign = "-" if value_s < 0 else ""
    size = abs(value_s)
    for unit_s, name in _UNITS:
        if size >= (2 if name in ("d", "h", "min") else 0.9995) * unit_s:
            return f"{sign}{_short(size / unit_s)} {name}"
    return f"{sign}{size / 1e-3:.2g} ms" if size else "0 ms"


def as_option(value_s: float) -> str:
    """As a user writes it after an option: `5h`, or `1.5h`."""
    for unit_s, name in _UNITS:
        text = f"{value_s / unit_s:.4g}"
        if value_s >= unit_s and "e" not in text and float(text) == value_s / unit_s:
            return text + name
    return f"{value_s:.6g}s"


def spread(times: Seconds) -> str:
    """The median, and the least and the most where there are several."""
    if times.number == 1:
        return f"{duration(times.median)} (once)"
    return f"{duration(times.median)} ({duration(times.least)} to {duration(times.most)})"


def size(value_bytes: float) -> str:
    for unit, name in _BYTES:
        if value_bytes >= unit:
            return f"{_short(value_bytes / unit)} {name}"
    return f"{value_bytes:.0f} bytes"


def percent(part: float) -> str:
    return f"{100 * part:.2g} %" if abs(part) < 0.1 else f"{100 * part:.0f} %"


def counted(number: float, thing: str) -> str:
    digits = f"{number:,.0f}" if number == round(number) else f"{number:,.4g}"
    return f"{digits} {thing}{'' if number == 1 else 's'}"


def number_of(things: str) -> Callable[[str], int]:
    """For argparse, to read what a user has written."""

    def read(text: str) -> int:
        if not text.isdigit() or int(text) == 0:
            raise argparse.ArgumentTypeError(
                f'"{text}" is not a number of {things}: use a whole number from 1'
            )
        return int(text)

    return read


def seconds(text: str) -> float:
    """`14h`, `90 s`, `8min`, `2d`. Raises argparse.ArgumentTypeError."""
    found = _TIME.fullmatch(text.strip())
    if found is None or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a time: write it as 90s, 8min, 14h or 2d'
        )
    return float(found[1]) * _UNIT_S[found[2]]
