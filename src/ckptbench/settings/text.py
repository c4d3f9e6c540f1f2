"""Text that a user gives and that readers see: titles and names in files. Any script is fine; what no reader can see is not."""

from __future__ import annotations

import unicodedata
from typing import Annotated

from pydantic import BeforeValidator

UNSEEN = ("Cc", "Cs", "Co", "Cn")
"""Unicode's categories of characters that have no look: controls, halves of characters, private and unassigned ones."""
TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""Classes of characters that turn the text around them, in whatever sentence that is."""


def one_line(value: object) -> str:
    """The text with single blanks for all white space. Raises ValueError with the remedy."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("use a text")
    text = " ".join(value.split())
    if unseen := unseen_in(text):
        raise ValueError(f"no reader can see the character U+{ord(unseen):04X} in it: remove it")
    return text


def unseen_in(text: str) -> str:
    """The first character that has no look of its own; "" if there is none. Joiners of emoji and scripts are fine."""
    wrong = (
        c
        for c in text
        if unicodedata.category(c) in UNSEEN or unicodedata.bidirectional(c) in TURNS
    )
    return next(wrong, "")


Text = Annotated[str, BeforeValidator(one_line)]
