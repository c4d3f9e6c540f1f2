"""How errors show a wrong value."""

from __future__ import annotations

import math
from collections.abc import Mapping

SHOWN_CHARACTERS = 80
MOST_DIGITS = 1000

AS_NUMBER = "; a number has no quotes, and YAML reads 1e-3 and 1.0e6 as text, but 1.0e-3 and 1.0e+6 as numbers"


def number_hint(value: object) -> str:
    """More of the remedy where a number was expected and `value` is a text that looks like one; else empty."""
    try:
        return AS_NUMBER if isinstance(value, str) and math.isfinite(float(value)) else ""
    except ValueError:
        return ""


def show(value: object) -> str:
    """The value in one line, shortened where it is long."""
    words = {"None": "null", "True": "true", "False": "false"}
    if isinstance(value, int) and value.bit_length() > 3 * MOST_DIGITS:
        text = hex(value)  # Python refuses to write thousands of decimal digits
    else:
        text = repr(dict(value) if isinstance(value, Mapping) else value)
    text = words.get(text, text)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
