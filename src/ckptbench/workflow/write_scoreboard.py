"""Write the table of trainers, its page and its figure."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from ckptbench.trainers import figure, page, table
from ckptbench.trainers.trainer import rows
from ckptbench.workflow.frame import add_shared

log = logging.getLogger("ckptbench")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--output")
    parser.add_argument("cells", type=Path, nargs="+", help="answers: NAME/CHECK.json")
    parser.add_argument("--trainers", type=Path, required=True, help="folder of the trainers")


def main(options: argparse.Namespace) -> None:
    """`--output` is the table; page and figure lie beside it."""
    cells = {(path.parent.name, path.stem): path for path in options.cells}
    names = {name for name, _ in cells}
    found = table.lines([row for row in rows(options.trainers) if row.name in names], cells)
    table.write(options.output, found)
    text = page.document(found)
    options.output.with_suffix(".md").write_text(text, encoding="utf-8")
    figure.draw(found, options.output.with_suffix(""))
    log.info("%s", options.output)
