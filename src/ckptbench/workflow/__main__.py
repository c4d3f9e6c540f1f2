"""`python -m ckptbench.workflow VERB`: one step of a study. `VERB --help` lists its options."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from ckptbench.workflow.frame import run_script

PACKAGE = "ckptbench.workflow"
VERBS = (
    *("create-environment", "use-environment", "prepare-dataset", "train-cell", "collect-runs", "analyse"),
    *("decide", "draw-figure", "write-answer", "write-page", "write-published", "audit"), *("check-trainer", "write-scoreboard"),
)  # fmt: skip
"""Each has a module of its name with `add_options` and `main`. Only that of the verb is imported: others need other libraries."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    verbs = argparse.ArgumentParser(f"python -m {PACKAGE}", description=__doc__)
    verbs.add_argument("verb", choices=VERBS)
    verb = verbs.parse_args(arguments[:1]).verb
    module = importlib.import_module(f"{PACKAGE}.{verb.replace('-', '_')}")
    parser = argparse.ArgumentParser(f"{verbs.prog} {verb}", description=module.__doc__)
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    parser.set_defaults(append=False)  # a verb that may go on with an older log sets it otherwise
    module.add_options(parser)
    options = parser.parse_args(arguments[1:])
    return run_script(lambda: module.main(options), options.log, append=options.append)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
