"""How errors show a wrong value."""

from __future__ import annotations

from collections.abc import Mapping

SHOWN_CHARACTERS = 80
MOST_DIGITS = 1000


def show(value: object) -> str:
    """The value in one line, shortened where it is long."""
    words = {"None": "null", "True": "true", "False": "false"}
    if isinstance(value, int) and value.bit_length() > 3 * MOST_DIGITS:
        text = hex(value)  # Python refuses to write thousands of decimal digits
    else:
        text = repr(dict(value) if isinstance(value, Mapping) else value)
    text = words.get(text, text)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
