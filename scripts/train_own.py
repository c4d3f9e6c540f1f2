"""Make one run of an own training under the probe, and seal its folder."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from ckptbench.own.cell import OwnCell
from ckptbench.own.record import OUTPUT, SEAL, OwnStudy
from ckptbench.own.run import Execution, run_own
from ckptbench.own.surroundings import given_to
from ckptbench.scripting import add_parent, run_script

log = logging.getLogger("ckptbench")


def main() -> int:
    options = _parse()

    def work() -> None:
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

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", type=json.loads, required=True, help="the cell, as JSON")
    parser.add_argument("--runs", type=Path, required=True, help="the folder of run folders")
    parser.add_argument("--study", type=Path, required=True, help="results/own/study.json")
    add_parent(parser)
    parser.add_argument("--log", type=Path, help="the log of this script")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
