"""Draw one figure from the tables of a study, as PDF and PNG."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.figures import FIGURES, OWN_FIGURES
from ckptbench.figures.files import write_figure
from ckptbench.scripting import run_script


def main() -> int:
    options = _parse()
    figures = OWN_FIGURES if options.own else FIGURES
    return run_script(
        lambda: write_figure(options.figure, options.tables, options.output_stem, figures),
        options.log,
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=FIGURES, help="which figure")
    parser.add_argument("--own", action="store_true", help="the tables are of an own training")
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables")
    parser.add_argument(
        "--output-stem", type=Path, required=True, help="where to write, without .pdf and .png"
    )
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
