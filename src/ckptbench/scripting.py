"""The frame of every script: it sets up the log and turns an error for the user into one line."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ckptbench.errors import CkptbenchError

log = logging.getLogger("ckptbench")


def add_parent(parser: argparse.ArgumentParser) -> None:
    """Add the option `--parent` of scripts that start processes: they end when the workflow has ended."""
    parser.add_argument(
        "--parent",
        type=int,
        default=os.getppid(),
        help="id of the process that starts this script and waits for it; when it has ended, the script ends all "
        "that it has started. Default: the parent of this process",
    )


def run_script(work: Callable[[], object], log_path: Path | None, *, append: bool = False) -> int:
    """Call `work` and log to the terminal and to `log_path`. Returns the exit status, 1 after a CkptbenchError."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if log_path is not None:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(
            logging.FileHandler(log_path, mode="a" if append else "w", encoding="utf-8")
        )
    logging.basicConfig(format="%(message)s", handlers=handlers)
    logging.getLogger("ckptbench").setLevel(logging.INFO)  # other libraries log warnings only
    try:
        work()
    except CkptbenchError as error:
        log.error("%s: %s", type(error).__name__, error)
        return 1
    return 0
