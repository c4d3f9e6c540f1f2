"""Draw one figure from the tables of a study, as PDF and PNG."""

from __future__ import annotations

import sys
from pathlib import Path

from ckptbench.common.scripting import parser_of, run_script
from ckptbench.report.figures import FIGURES, OWN_FIGURES
from ckptbench.report.figures.files import write_figure


def main() -> int:
    parser = parser_of(__doc__, "--own", "--tables")
    parser.add_argument("figure", choices=FIGURES, help="which figure")
    parser.add_argument(
        "--output-stem", type=Path, required=True, help="where to write, without .pdf and .png"
    )
    options = parser.parse_args()
    figures = OWN_FIGURES if options.own else FIGURES
    return run_script(
        lambda: write_figure(options.figure, options.tables, options.output_stem, figures),
        options.log,
    )


if __name__ == "__main__":
    sys.exit(main())
