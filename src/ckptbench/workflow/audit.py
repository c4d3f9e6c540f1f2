"""Audit this machine: is a study that was made on it to be believed? Takes less than three minutes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

# Before NumPy is imported: the waits in its pool of threads are noisier than what the audit measures.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from ckptbench.analysis.tables.store import read_tables, write_tables  # noqa: E402
from ckptbench.audit.calibration import Size  # noqa: E402
from ckptbench.audit.check import audit, in_words  # noqa: E402
from ckptbench.audit.machine import audit_machine  # noqa: E402
from ckptbench.audit.study import TABLES  # noqa: E402
from ckptbench.common.errors import CheckpointError  # noqa: E402
from ckptbench.common.objects import place_of  # noqa: E402
from ckptbench.inputs.environments.lock_file import pinned_sha256  # noqa: E402
from ckptbench.workflow.frame import add_shared  # noqa: E402

LEAST_REPEATS = 2


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--tables")
    storage = "folder on the file system of the study's checkpoints"
    parser.add_argument("--checkpoints", type=place_of, required=True, help=storage)
    repeats = "of the calibration: more make its intervals narrower, and take longer"
    parser.add_argument("--repeats", type=_repeats, default=Size().repeats, help=repeats)


def main(options: argparse.Namespace) -> None:
    if not isinstance(options.checkpoints, Path):
        raise CheckpointError(
            f"the audit measures file systems, and checkpoints.folder is {options.checkpoints}: give it a folder, as with "
            "--config checkpoints='{folder: null}'"
        )
    there = [name for name in TABLES if (options.tables / f"{name}.parquet").exists()]
    checks = audit_machine(
        read_tables(options.tables, there, set_aside=True),
        options.checkpoints.absolute(),
        pinned_sha256(Path(__file__).resolve().parents[3] / "envs" / "main.txt"),
        Size(repeats=options.repeats),
    )
    write_tables(options.tables, {"audit": audit(checks)})
    print(in_words(checks))


def _repeats(text: str) -> int:
    if not text.isdigit() or int(text) < LEAST_REPEATS:
        raise argparse.ArgumentTypeError(
            f"{text}: use a whole number from {LEAST_REPEATS}: one repeat has no interval"
        )
    return int(text)
