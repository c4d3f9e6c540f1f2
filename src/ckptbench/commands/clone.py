"""Verbs that need a clone of ckptbench, as the workflow is not part of the wheel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ckptbench.errors import ConfigError

PARTS = ("Makefile", "Snakefile", "src/ckptbench")
"""What tells a clone from another folder."""


def make(target: str, settings: Mapping[str, object]) -> int:
    """Make the target in the clone that is the working folder, or around it. Returns the exit status, 1 where it failed.

    Settings that are not None reach it through the environment. Raises ConfigError where there is no clone.
    """
    here = Path.cwd()
    clone = next((each for each in (here, *here.parents) if _is_clone(each)), None)
    if clone is None:
        raise ConfigError(
            f"{here} is no clone of ckptbench, which `ckptbench {target}` needs: clone the repository, and start it there"
        )
    given = {name: str(own) for name, own in settings.items() if own is not None}
    command = ["make", "--no-print-directory", target]
    done = subprocess.run(command, cwd=clone, env={**os.environ, **given}, check=False)
    return 1 if done.returncode else 0


def _is_clone(folder: Path) -> bool:
    return all((folder / part).exists() for part in PARTS)
