"""One sentence as a point of a list, which is text to read and reStructuredText as well."""

from __future__ import annotations

import re
from textwrap import fill

WIDTH = 100
"""Letters in a line."""
UNBROKEN = "\N{NO-BREAK SPACE}"
NUMBER = re.compile(r"(?<=\d) (?=(?:%|s|images/s|kB|MB|GB)(?![\w]))")
"""The space between a number and its unit. No line ends there."""
MARKUP = re.compile(r"[\\*`|]|_(?!\w)")
"""What reStructuredText would take for markup in a name of a machine."""


def item(sentence: str) -> str:
    escaped = MARKUP.sub(lambda found: f"\\{found[0]}", sentence)
    unbroken = NUMBER.sub(UNBROKEN, escaped)
    filled = fill(
        unbroken,
        WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(UNBROKEN, " ")
