"""What text may stand in a submission file for qsub: one place for all of it.

Grid Engine has no way to escape a character in a `#$` line, so what it would read as something else is refused.
"""

from __future__ import annotations

import re
import unicodedata

_ENDS_WORD = "\"'#\\"
"""Ends a word of a `#$` line or begins a quoted one, as white space does."""
_IN_PATH = {
    '"': "ends the quoted path",
    "'": "ends the quoted path",
    "#": "begins a comment",
    "$": "begins a variable such as $HOME",
    ":": "ends the name of a host",
    ",": "ends a path of a list",
}
"""Seen with 8.1.9: logs went elsewhere, or the job into an error state."""
_OPTION = re.compile(r"-[A-Za-z_]+")


def line(text: str, place: str) -> str:
    """`text` if it is one line. Raises ValueError, with `place` (the parameter) and the character."""
    for character in text:
        if is_control(character):
            raise _refused(text, place, character, "begins a new line or cannot be seen")
    return text


def word(text: str, place: str) -> str:
    """`text` if it is one word of a `#$` line. Raises ValueError, with `place` and the character."""
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


def log_path(text: str) -> str:
    """`text`, a path, if `-o` and `-e` take it in quotes for what it is. Raises ValueError otherwise."""
    for character in line(text, "the folder"):
        if character in _IN_PATH:
            raise _refused(text, "the folder", character, f"{_IN_PATH[character]} in -o and -e")
    return text


def is_control(character: str) -> bool:
    """Whether it ends a line, or cannot be printed."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def _refused(text: str, place: str, character: str, why: str) -> ValueError:
    return ValueError(
        f"{place} is {text!r}: Grid Engine cannot take the character {character!r}, which {why}. "
        "Write it without."
    )
