"""What a study has left in its folder for the page: figures and tables, of those that the registries name."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyarrow import parquet  # type: ignore[import-untyped]

from ckptbench.report.figures import FIGURES

PIXELS_PER_INCH = 125
"""Of a window: figures are drawn for paper, with letters of 7 points."""
INCHES_PER_METRE = 39.37


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure that was drawn."""

    png: bytes
    caption: str

    def shown_size(self) -> tuple[int, int]:
        """Width and height in a window, in the proportion to other figures that paper has."""
        width, height = struct.unpack(">II", self.png[16:24])
        at = self.png.find(b"pHYs")
        per_metre = struct.unpack(">I", self.png[at + 4 : at + 8])[0] if at > 0 else 0
        scale = PIXELS_PER_INCH * INCHES_PER_METRE / per_metre if per_metre else 1.0
        return round(width * scale), round(height * scale)


@dataclass(frozen=True, slots=True)
class Stored:
    """A table that was written."""

    rows: int


def drawn_figures(paths: Iterable[Path]) -> dict[str, Drawn]:
    """Those of the registry among these pictures, by name. Their captions lie beside them."""
    pictures = {path.stem: path for path in paths if path.suffix == ".png"}
    return {name: _drawn(pictures[name]) for name in FIGURES if name in pictures}


def _drawn(picture: Path) -> Drawn:
    caption = picture.with_suffix(".txt").read_text(encoding="utf-8")
    return Drawn(picture.read_bytes(), " ".join(caption.split()))


def stored_tables(folder: Path, names: Iterable[str]) -> dict[str, Stored]:
    """Those of the tables that lie in the folder, by name."""
    paths = {name: folder / f"{name}.parquet" for name in names}
    return {
        name: Stored(parquet.read_metadata(path).num_rows)
        for name, path in paths.items()
        if path.exists()
    }
