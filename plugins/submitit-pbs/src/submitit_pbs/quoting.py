"""What text may stand in a submission file for qsub: one place for all of it.

PBS has no way to escape a character in a `#PBS` line, so what it would read as something else is refused.
"""

from __future__ import annotations

import re
import unicodedata

_ENDS_WORD = "\"'#\\"
"""Ends a word of a `#PBS` line or begins a quoted one, as white space does."""
_OPTION = re.compile(r"-[A-Za-z_]+")


def line(text: str, place: str) -> str:
    """`text` if it is one line. Raises ValueError, with `place` (the parameter) and the character."""
    for character in text:
        if is_control(character):
            raise _refused(text, place, character, "begins a new line or cannot be seen")
    return text


def word(text: str, place: str) -> str:
    """`text` if it is one word of a `#PBS` line. Raises ValueError, with `place` and the character."""
    for character in line(text, place):
        if character.isspace() or character in _ENDS_WORD:
            raise _refused(text, place, character, "is not part of one word")
    if text.startswith("-"):
        raise ValueError(f"{place} is {text!r}: qsub takes a leading - for an option. Use a name.")
    return text


def option(text: str, place: str) -> str:
    """`text` if it is the name of an option, as `-P`. Raises ValueError otherwise."""
    if not _OPTION.fullmatch(text):
        raise ValueError(f"{place} is {text!r}: use an option of qsub, such as -P.")
    return text


def folder(text: str) -> str:
    """The folder, in quotes where `-o` and `-e` need them. Raises ValueError for what they do not take.

    Seen with OpenPBS 23.06.06: quotes keep all of ASCII but `"`, also `:` and `,`. It takes no other letters.
    """
    for character in line(text, "the folder"):
        if character == '"' or not character.isascii():
            raise _refused(text, "the folder", character, "-o and -e do not take")
    return text if re.fullmatch(r"[\w./+-]+", text, re.ASCII) else f'"{text}"'


def is_control(character: str) -> bool:
    """Whether it ends a line, or cannot be printed."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def _refused(text: str, place: str, character: str, why: str) -> ValueError:
    return ValueError(
        f"{place} is {text!r}: PBS cannot take the character {character!r}, which {why}. "
        "Write it without."
    )
