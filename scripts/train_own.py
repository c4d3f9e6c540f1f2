"""Make one run of an own training under the probe, and seal its folder."""

from __future__ import annotations

import argparse
import logging
import sys

from ckptbench.common.scripting import parser_of, run
from ckptbench.own.cell import OwnCell
from ckptbench.own.record import OUTPUT, SEAL, OwnStudy
from ckptbench.own.run import Execution, run_own
from ckptbench.own.surroundings import given_to

log = logging.getLogger("ckptbench")


def main(options: argparse.Namespace) -> None:
    cell = OwnCell.from_json(options.cell)
    study = OwnStudy.read(options.study)
    done = sum((options.runs / each.id / SEAL).exists() for each in study.cells)
    output = options.runs / cell.id / OUTPUT
    log.info("runs: %d of %d done; now %s", done, len(study.cells), output)
    run_own(
        cell,
        Execution(
            runs=options.runs.resolve(),
            environment=given_to(options.parent),
            keep=study.keep,
            timeout_seconds=study.timeout_seconds,
            repeat=study.repeat,
            parent=options.parent,
        ),
    )


if __name__ == "__main__":
    sys.exit(run(parser_of(__doc__, "--cell", "--runs", "--study", "--parent"), main))
