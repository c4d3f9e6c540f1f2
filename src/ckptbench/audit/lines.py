"""One sentence as a point of a list, which is text to read and reStructuredText as well."""

from __future__ import annotations

import re
from textwrap import fill

WIDTH = 100
"""Letters in a line."""
UNBROKEN = "\N{NO-BREAK SPACE}"
NUMBER = re.compile(r"(?<=\d) (?=(?:%|s|images/s|kB|MB|GB)(?![\w]))")
"""The space between a number and its unit. No line ends there."""
MARKUP = re.compile(r"[\\*`|]|_(?![^\W_])|(?<=:):")
"""What reStructuredText would take for markup in a name, of a machine or of a user."""
PLAIN_START = re.compile(r"\w+\b(?![.)](?:\s|$))")
"""A sentence that begins otherwise might be a list, a field or a directive: `1. x`, `:x:`, `.. raw:: html`."""


def item(sentence: str) -> str:
    """The sentence in lines of WIDTH letters. It is never empty."""
    escaped = MARKUP.sub(lambda found: f"\\{found[0]}", sentence)
    if not PLAIN_START.match(escaped) and not escaped.startswith("\\"):
        escaped = f"\\{escaped}"
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
