"""What text may stand in a submission file for qsub: one place for all of it.

There is no way to escape a character in a line with an option, so what qsub would read as something else is refused.
"""

from __future__ import annotations

import re
import unicodedata

_ENDS_WORD = "\"'#\\"
"""Ends a word of a line with an option or begins a quoted one, as white space does."""
_OPTION = re.compile(r"-[A-Za-z_]+")
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def line(text: str, place: str) -> str:
    """`text` if it is one line. Raises ValueError, with `place` (the parameter) and the character."""
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise refused(text, place, character, "begins a new line or cannot be seen")
    return text


def word(text: str, place: str) -> str:
    """`text` if it is one word. Raises ValueError, with `place` and the character."""
    for character in line(text, place):
        if character.isspace() or character in _ENDS_WORD:
            raise refused(text, place, character, "is not part of one word")
    if text.startswith("-"):
        raise ValueError(f"{place} is {text!r}: qsub reads a leading - as an option. Use a name.")
    return text


def option(text: str, place: str) -> str:
    """`text` if it is the name of an option, as `-P`. Raises ValueError otherwise."""
    if not _OPTION.fullmatch(text):
        raise ValueError(f"{place} is {text!r}: use an option of qsub, such as -P.")
    return text


def words(text: str) -> list[str]:
    """The words of a line with options, each with its quotes."""
    return re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*'|["'])+""", text)


def arguments(text: str, option: str) -> tuple[list[str], str]:
    """What follows each `option` (as `-v`) of a line with options, and the rest of the line."""
    found, rest = [], []
    left = words(text)
    while left:
        each = left.pop(0)
        if each == option and left:
            found.append(left.pop(0))
        elif each.startswith(option) and each != option:
            found.append(each.removeprefix(option))
        else:
            rest.append(each)
    return found, " ".join(rest)


def job_name(text: str) -> str:
    """A name that every qsub takes: no leading digit, no white space, none of /:@\\*?"""
    plain = re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)
    return plain if re.match(r"[A-Za-z_]", plain) else f"j{plain}"


def refused(text: str, place: str, character: str, why: str) -> ValueError:
    return ValueError(
        f"{place} is {text!r}: qsub cannot take the character {character!r}, which {why}. "
        "Remove it."
    )


def is_unsafe(name: str, value: str) -> bool:
    """Whether `qsub -V` may mangle this variable: an exported shell function, or else no plain name or not one line."""
    return "\n" in value or not _PLAIN.fullmatch(name)
