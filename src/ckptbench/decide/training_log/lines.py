"""The lines of a log as a terminal shows them, and the times in them."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from ckptbench.common.errors import DataError
from ckptbench.common.files import read_regular
from ckptbench.common.remedies import blame
from ckptbench.decide import clock
from ckptbench.decide.units import SECONDS_PER_DAY

LONGEST = 10_000
"""Characters of a line: a longer one is read in parts."""
COLOURS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
GZIP = b"\x1f\x8b"
STAMP = re.compile(r"\d{4}([-/])\d\d\1\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?")
STAMP_WITHIN = 100
"""Characters of a line, in which a date counts as the time of the line."""
CLOCK = re.compile(r"(?:(\d{1,5}) days?,? )?(?:(\d{1,6}):)?(\d{1,2}):(\d{1,2}(?:\.\d{1,9})?)")
"""As Python writes a timedelta, with its days."""
WHOLE_TIME = re.compile(rf"{STAMP.pattern}|(?<![\d:.]){CLOCK.pattern}(?![\d:])")
NEAR = 40
"""Characters before and after a part of a time, in which the rest of it stands."""
BEFORE_BAR = 300
"""Characters before the count of a progress bar, in which its name stands."""
LONGEST_NAME = 80


def content_of(path: Path) -> bytes:
    """Of the file, unpacked. Raises DataError."""
    try:
        content = read_regular(path)
        return gzip.decompress(content) if content.startswith(GZIP) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be unpacked: {error}; unpack it by gunzip") from None
    except OSError as error:
        told = blame(error, path, "correct --training-log", reading=True)
        raise DataError(f"{path}: cannot be read: {told}") from None


def lines_of(content: bytes) -> Iterator[str]:
    """Each as it was written, without colours. A bar of progress that a carriage return ends is a line too."""
    for line in io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", "replace", newline=None):
        for begin in range(0, len(line), LONGEST):
            part = line[begin : begin + LONGEST]
            yield COLOURS.sub("", part) if "\x1b" in part else part


def stamp_in(line: str) -> str | None:
    """The first date and time near the beginning of the line."""
    match = STAMP.search(line, 0, STAMP_WITHIN)
    return match[0] if match else None


def whole_time(line: str, begin: int, end: int) -> str:
    """What stands from `begin` to `end`, or the time that this is a part of, as the 1 of `1 day, 0:06:29`."""
    first = max(begin - NEAR, 0)
    for match in WHOLE_TIME.finditer(line, first, end + NEAR):
        if match.start() <= begin and end <= match.end():
            return match[0]
    return line[begin:end]


def bar_name(line: str, end: int) -> str:
    """That of the progress bar whose count begins at `end`. Numbers in it, as of an epoch, are left out."""
    before = line[max(end - BEFORE_BAR, 0) : end].rpartition("%|")[0]
    name = before.rpartition("]")[2].rpartition("\r")[2].replace("#015", "")
    return re.sub(r"\d+", "#", name.rstrip("0123456789. ").rstrip(": ").strip()[-LONGEST_NAME:])


def seconds_of(text: str) -> float:
    """Of a date and time, of `7:21`, `1:07:21` and `2 days, 1:07:21`, or of a number: since the beginning of its clock. Raises ValueError."""
    if match := CLOCK.fullmatch(text):
        days, hours, minutes = (int(match[part] or 0) for part in (1, 2, 3))
        return days * SECONDS_PER_DAY + hours * 3600 + minutes * 60 + float(match[4])
    return clock.seconds_of(text)
