"""Figures on disk: from a folder of tables to a PDF and a PNG."""

from __future__ import annotations

import logging
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables
from ckptbench.figures import FIGURES
from ckptbench.figures.kit.letters import lettered

log = logging.getLogger("ckptbench")

# Without its date a figure drawn again from the same tables is the same file.
METADATA = {".pdf": {"CreationDate": None}, ".png": {"Software": None}}


def write_figure(name: str, tables_folder: Path, output_stem: Path) -> list[Path]:
    """Draw the figure of this name and write `<output_stem>.pdf` and `.png`; returns their paths.

    Raises RunFolderError where a table is missing or of another version.
    """
    entry = FIGURES[name]
    tables = read_tables(tables_folder, entry.tables)
    output_stem.parent.mkdir(parents=True, exist_ok=True)
    # Not with_suffix(): a stem may contain a dot.
    paths = {output_stem.with_name(output_stem.name + suffix): suffix for suffix in METADATA}
    with lettered(tables) as legible:
        figure = entry.draw(legible)
        for path, suffix in paths.items():
            figure.savefig(path, metadata=METADATA[suffix])
            log.info("%s", path)
    return list(paths)
