"""Figures on disk: from a folder of tables to a PDF, a PNG and the text that stands beside them."""

from __future__ import annotations

import logging
from pathlib import Path
from textwrap import fill

from ckptbench.analysis.tables.store import read_tables
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit.style import paper

log = logging.getLogger("ckptbench")

# Without its date a figure drawn again from the same tables is the same file.
METADATA = {".pdf": {"CreationDate": None}, ".png": {"Software": None}}
CAPTION = ".txt"
WIDTH = 100
"""Letters in a line of a caption."""


def write_figure(name: str, tables_folder: Path, output_stem: Path) -> list[Path]:
    """Draw the figure of this name and write `<output_stem>.pdf`, `.png` and its caption, `.txt`; returns their paths.

    Raises RunFolderError where a table is missing or of another version.
    """
    entry = FIGURES[name]
    tables = read_tables(tables_folder, entry.tables, set_aside=True)
    output_stem.parent.mkdir(parents=True, exist_ok=True)
    # Not with_suffix(): a stem may contain a dot.
    paths = {
        suffix: output_stem.with_name(output_stem.name + suffix) for suffix in (*METADATA, CAPTION)
    }
    with paper(tables):  # savefig needs its fonts and settings too, after draw() has left its own
        figure = entry.draw(tables)
        for suffix, metadata in METADATA.items():
            figure.savefig(paths[suffix], metadata=metadata)
            figure.set_layout_engine("none")  # what the first file has found serves the others
    text = fill(figure.caption, WIDTH)
    paths[CAPTION].write_text(f"{text}\n", encoding="utf-8")
    for path in paths.values():
        log.info("%s", path)
    return list(paths.values())
