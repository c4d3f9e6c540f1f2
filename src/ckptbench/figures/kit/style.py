"""How every figure looks: the style file, and one colour and marker per framework everywhere."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

from ckptbench.answer.labels import is_verbatim
from ckptbench.matrix.catalogue import FRAMEWORKS

STYLE_FILE = Path(__file__).with_name("ckptbench.mplstyle")

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
# Yellow, the palette's eighth, cannot be seen on white.
SPARE_LOOKS = tuple(Look(color, marker) for marker in "PX*" for color in ("#E69F00", "#000000"))

INK = "#222222"
FAINT = "#8a8a8a"
BAND = "#fbf3c0"
GREYS = ("#404040", "#737373", "#a3a3a3", "#c9c9c9", "#e8e8e8", "#ffffff")
"""Parts of a whole, first to last: greys, because colours are frameworks."""
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
    """The look of a framework. One that is not in LOOKS gets a spare look, which depends on its name alone; a user's script gets the first, as
    a black that is paler for steps looks like the greys of parts."""
    if is_verbatim(framework):
        return SPARE_LOOKS[0]
    spare = SPARE_LOOKS[zlib.crc32(framework.encode()) % len(SPARE_LOOKS)]
    return LOOKS.get(framework, spare)


@contextmanager
def paper() -> Iterator[None]:
    """matplotlib's defaults and the style file, whatever the user's settings; undone at the end."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rc_file(STYLE_FILE, use_default_template=False)
        yield
