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

LONGEST = 10_000
"""Characters of a line: a longer one is read in parts."""
COLOURS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
GZIP = b"\x1f\x8b"
STAMP = re.compile(r"\d{4}([-/])\d\d\1\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?")
STAMP_WITHIN = 100
"""Characters of a line, in which a date counts as the time of the line."""
CLOCK = re.compile(r"(?:(\d{1,6}):)?(\d{1,2}):(\d{1,2}(?:\.\d{1,9})?)")


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


def seconds_of(text: str) -> float:
    """Of a date and time, of `7:21` and `1:07:21`, or of a number: since the beginning of its clock. Raises ValueError."""
    if match := CLOCK.fullmatch(text):
        return int(match[1] or 0) * 3600 + int(match[2]) * 60 + float(match[3])
    return clock.seconds_of(text)
