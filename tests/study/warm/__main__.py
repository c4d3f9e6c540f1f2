"""`python -m tests.study.warm COMMAND`: a command whose sessions of tests share one set of warm servers, which end with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tests.conftest  # noqa: F401  (what libraries read when they are imported)

from .environments import ENVIRONMENTS, SHARED, VENV, lay_out_environments, lay_out_snakemake

with tempfile.TemporaryDirectory(prefix="ckptbench-warm-") as folder:
    lay_out_environments(Path(folder, ENVIRONMENTS))
    lay_out_snakemake(Path(folder, VENV))
    sys.exit(subprocess.call(sys.argv[1:], env={**os.environ, SHARED: folder}))
