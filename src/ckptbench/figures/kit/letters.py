"""Letters of users: what figures do with text that their own font cannot draw.

Names and titles may be in any script. Figures take the letters that their font lacks from other fonts of this machine. A letter that
none has is replaced by its number in Unicode, and one warning says so.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby

import matplotlib as mpl
import pandas as pd
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font, LoadFlags

from ckptbench.figures.kit.style import paper

log = logging.getLogger("ckptbench")

Tables = Mapping[str, pd.DataFrame]
WEIGHTS = ("normal", "bold")
"""Of all texts in figures: titles are bold."""
BOXES = "Last Resort"
"""A font of matplotlib that draws a box for every letter."""
MOST_NUMBERS = 6
"""How many letters in a row are replaced by their numbers; dots stand for the others."""
REMEDY = (
    "Install a font that has them (of Debian: fonts-noto-cjk for Chinese, Japanese and Korean, fonts-symbola for emoji), remove the figure "
    "and run this again"
)


@dataclass(frozen=True, slots=True)
class Legible:
    """Tables with a text in place of letters that no font of this machine has."""

    tables: Tables
    instead: Mapping[str, str]
    """By text what is drawn for it."""

    def restored(self, caption: str) -> str:
        """A caption of a figure of these tables, with the letters of the user: it is not drawn."""
        for text, readable in self.instead.items():
            caption = caption.replace(readable, text)
        return caption


@contextmanager
def lettered(tables: Tables) -> Iterator[Legible]:
    """The style of the paper, with fonts for all letters of the tables, and one warning of those that no font has."""
    with paper(), _quiet():
        own = str(mpl.rcParams["font.family"][0])
        texts = _texts(tables)
        lacking = {letter for letter in set().union(*texts) if not _draws(own, letter)}
        families = _families(lacking)
        mpl.rcParams["font.family"] = [own, *families]
        if families:  # a PDF shows nothing of an OpenType font that is embedded as TrueType
            mpl.rcParams["pdf.fonttype"] = 3
        nowhere = {
            letter for letter in lacking if not any(_draws(each, letter) for each in families)
        }
        instead = substitutes(texts, nowhere) if nowhere else {}
        yield Legible(_replaced(tables, instead) if nowhere else tables, instead)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without matplotlib's lines on weights that a family has not: what is drawn is checked here."""
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def substitutes(texts: Iterable[str], lacking: set[str]) -> dict[str, str]:
    """What to write instead of each text that has a letter of `lacking`: other texts for other texts."""
    taken = {text for text in texts if not lacking.intersection(text)}
    instead: dict[str, str] = {}
    for text in sorted({*texts} - taken):
        readable = plain = _with_numbers(text, lacking)
        number = 1
        while readable in taken:
            number += 1
            readable = f"{plain} ({number})"
        taken.add(readable)
        instead[text] = readable
    return instead


def _with_numbers(text: str, lacking: set[str]) -> str:
    """`[U+5B66 U+7FD2]` for letters in a row; nothing for what cannot be seen, such as a joiner of emoji."""
    parts = []
    for missing, run in groupby(text, lacking.__contains__):
        letters = list(run)
        if not missing:
            parts.append("".join(letters))
            continue
        numbers = [f"U+{ord(each):04X}" for each in letters if not _is_unseen(each)]
        more = [*numbers[:MOST_NUMBERS], "..."] if len(numbers) > MOST_NUMBERS else numbers
        parts.append(f"[{' '.join(more)}]" if more else "")
    return "".join(parts) or "[]"


def _is_unseen(letter: str) -> bool:
    return unicodedata.category(letter) == "Cf" or "VARIATION SELECTOR" in unicodedata.name(
        letter, ""
    )


def _texts(tables: Tables) -> set[str]:
    return {
        text
        for table in tables.values()
        for column in table.columns
        if not pd.api.types.is_numeric_dtype(table[column])
        for text in table[column].dropna().unique()
        if isinstance(text, str)
    }


def _replaced(tables: Tables, instead: Mapping[str, str]) -> Tables:
    shown = [f"{text!r} as {readable!r}" for text, readable in instead.items()]
    more = f" and {len(shown) - 3} more texts" if len(shown) > 3 else ""
    log.warning(
        "no font of this machine has all letters of some texts: the figure shows %s%s. %s", ", ".join(shown[:3]), more, REMEDY
    )  # fmt: skip
    return {name: table.replace(dict(instead)) for name, table in tables.items()}


def _families(lacking: set[str]) -> list[str]:
    """Families of this machine that have these letters, those first that have most of them."""
    left = {letter for letter in lacking if not _is_unseen(letter)}
    found: list[str] = []
    candidates = _installed() if left else []
    while left:
        having = {name: {each for each in left if _draws(name, each)} for name in candidates}
        best = max(having, key=lambda name: (len(having[name]), "Sans" in name), default="")
        if not best or not having[best]:
            break
        found.append(best)
        left -= having[best]
    return found


@cache
def _installed() -> list[str]:
    """All families, in the order of the alphabet. matplotlib's own list is of its first start: later fonts are added to it."""
    known = {str(entry.fname) for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            try:
                font_manager.fontManager.addfont(path)
            except (RuntimeError, OSError) as error:  # one that cannot be read
                log.debug("%s: %s", path, error)
    names = {entry.name for entry in font_manager.fontManager.ttflist}
    return sorted(name for name in names if not name.startswith(BOXES))


@cache
def _draws(family: str, letter: str) -> bool:
    """Whether the family has an outline for the letter. One of bitmaps has none."""
    if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp"):
        return False
    fonts = (_font(family, weight) for weight in WEIGHTS)
    return all(font is not None and _has(font, letter) for font in fonts)


@cache
def _font(family: str, weight: str) -> FT2Font | None:
    properties = font_manager.FontProperties(family=[family], weight=weight)
    try:
        font = FT2Font(font_manager.findfont(properties, fallback_to_default=False))
        font.set_size(12, 72)
    except (RuntimeError, ValueError, OSError) as error:
        log.debug("%s: %s", family, error)
        return None
    return font


def _has(font: FT2Font, letter: str) -> bool:
    if not font.get_char_index(ord(letter)):
        return False
    if letter.isspace() or _is_unseen(letter):
        return True
    try:
        font.load_char(ord(letter), flags=LoadFlags.NO_HINTING)
    except RuntimeError:
        return False
    return len(font.get_path()[0]) > 0
