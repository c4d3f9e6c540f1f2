"""How every figure looks: the style file, fonts, and one colour and marker per framework everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import font_manager

from ckptbench.matrix.registry import FRAMEWORKS

STYLE_FILE = Path(__file__).with_name("ckptbench.mplstyle")
FALLBACK_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "IPAexGothic",
    "WenQuanYi Zen Hei",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Symbola",
    "Noto Emoji",
    "Unifont",
)
"""Fonts for letters of users that matplotlib's own font lacks. Those that are installed are used, in this order; of letters that none has, matplotlib warns."""

COLUMN_IN = 3.5
"""Width of a figure of one column of panels."""
PAGE_IN = 7.16
"""Width of a figure of two."""


@dataclass(frozen=True, slots=True)
class Look:
    """A colour, and a marker that tells the same without colour."""

    color: str
    marker: str


LOOKS = {
    name: Look(entry.color, entry.marker)
    for name, entry in FRAMEWORKS.items()
    if entry.color is not None and entry.marker is not None
}
SPARE_LOOK = Look("#555555", "*")
"""Of a framework that brings none. A black that is paler for steps would look like the greys of parts."""

INK = "#222222"
FAINT = "#8a8a8a"
BAND = "#fbf3c0"
GREYS = ("#404040", "#737373", "#a3a3a3", "#c9c9c9", "#e8e8e8", "#ffffff")
"""Parts of a whole, first to last: greys, because colours are frameworks."""
PART_COLORS = ("#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677", "#ffffff")
"""Parts of a restart, which greys alone would not tell apart: colours for colour-blind people too, dark and pale by turns."""
LineStyle = tuple[float, tuple[float, ...]]
SOLID: LineStyle = (0, ())
DASHED: LineStyle = (0, (4, 1.5))
DOTTED: LineStyle = (0, (1, 1.2))
DASH_DOTTED: LineStyle = (0, (5, 1.2, 1, 1.2))
LINE_STYLES: tuple[LineStyle, ...] = (
    SOLID,
    DASHED,
    DOTTED,
    DASH_DOTTED,
    (0, (9, 3)),
    (0, (5, 1.2, 1, 1.2, 1, 1.2)),
    (0, (1, 4)),
    (0, (9, 2, 3, 2)),
)
"""Series of one framework, by their place in its order."""


def look(framework: str) -> Look:
    """The look of a framework."""
    return LOOKS.get(framework, SPARE_LOOK)


@contextmanager
def paper(tables: Mapping[str, pd.DataFrame] | None = None) -> Iterator[None]:
    """matplotlib's defaults and the style file, whatever the user's settings, with fonts for the letters of the tables; undone at the end."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_style())
        _add_fonts(_letters(tables or {}))
        yield


@cache
def _style() -> mpl.RcParams:
    """The style file, which is read once a process."""
    return mpl.rc_params_from_file(STYLE_FILE, use_default_template=False)


def _letters(tables: Mapping[str, pd.DataFrame]) -> set[str]:
    texts = (
        frame[column].dropna().unique()
        for frame in tables.values()
        for column in frame.select_dtypes(exclude=["number", "bool"])
    )
    return {letter for column in texts for text in column for letter in str(text)}


def _add_fonts(letters: set[str]) -> None:
    """Fallback fonts, where the style's own font lacks one of the letters."""
    font = font_manager.get_font(font_manager.findfont(mpl.rcParams["font.family"][0]))
    known = font.get_charmap()
    if all(ord(letter) in known for letter in letters if letter.isprintable()):
        return
    installed = set(font_manager.get_font_names())
    families = [family for family in FALLBACK_FONTS if family in installed]
    mpl.rcParams["font.family"] += families
    if families:  # a PDF shows nothing of an OpenType font that is embedded as TrueType
        mpl.rcParams["pdf.fonttype"] = 3
