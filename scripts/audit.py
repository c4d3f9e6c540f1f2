"""Audit this machine: is a study that was made on it to be believed? Takes less than three minutes."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path

# Before NumPy is imported: the waits in its pool of threads are noisier than what the audit measures.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from ckptbench.analysis.tables.store import read_tables, write_tables  # noqa: E402
from ckptbench.audit.calibration import Size  # noqa: E402
from ckptbench.audit.machine import audit_machine  # noqa: E402
from ckptbench.audit.page import page  # noqa: E402
from ckptbench.audit.study import TABLES  # noqa: E402
from ckptbench.audit.table import audit  # noqa: E402
from ckptbench.common.scripting import run_script  # noqa: E402
from ckptbench.environments.lock_file import pinned_sha256  # noqa: E402

LEAST_REPEATS = 2


def main() -> int:
    options = _parse()

    def work() -> None:
        started = time.monotonic()
        there = [name for name in TABLES if (options.tables / f"{name}.parquet").exists()]
        checks = audit_machine(
            read_tables(options.tables, there),
            options.checkpoints.absolute(),
            pinned_sha256(options.lock),
            Size(repeats=options.repeats),
        )
        text = page(
            checks,
            host=socket.gethostname(),
            folder=str(options.checkpoints),
            seconds=time.monotonic() - started,
        )
        write_tables(options.tables, {"audit": audit(checks)})
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, default=Path("results/tables"), help="of the study")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=Path("results/runs"),
        help="folder on the file system of the study's checkpoints",
    )
    parser.add_argument("--lock", type=Path, default=Path("envs/main.txt"), help="of this program")
    parser.add_argument(
        "--repeats",
        type=_repeats,
        default=Size().repeats,
        help="of the calibration: more make its intervals narrower, and take longer",
    )
    parser.add_argument("--output", type=Path, required=True, help="the text file to write")
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


def _repeats(text: str) -> int:
    if not text.isdigit() or int(text) < LEAST_REPEATS:
        raise argparse.ArgumentTypeError(
            f"{text}: use a whole number from {LEAST_REPEATS}: one repeat has no interval"
        )
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
