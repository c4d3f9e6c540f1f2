"""Text of a user in what Snakemake runs and reads: one place for the commands of rules, one for the names of their inputs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from ckptbench.common.errors import ConfigError
from ckptbench.common.foreign import VARIABLES

PATTERN = re.compile(r"\{\s*\w|<\w")
"""The beginning of what Snakemake takes in the path of an input for a wildcard, or for one of its own variables."""


def shell_prefix(python: Path, workflow: int) -> str:
    """What every command of a rule begins with: `python` is this interpreter, without a site's variables for another one, and
    $WORKFLOW the process with this id.

    As Snakemake's `shell.prefix` wants it, which takes braces for fields. Raises ConfigError where no PATH can name the folder.
    """
    folder = str(python.parent)
    if ":" in folder:
        raise ConfigError(
            f"Snakemake's Python is in {folder!r}: a : ends the name of a folder in PATH, so rules would run another python. "
            "Move the clone to a folder without one"
        )
    braced = shlex.quote(folder).replace("{", "{{").replace("}", "}}")
    return f"unset {' '.join(VARIABLES)}; export PATH={braced}:$PATH; WORKFLOW={workflow}; "


def check_input(path: str, field: str) -> None:
    """Raises ConfigError where Snakemake would read the path otherwise. `field` names it in the config."""
    if found := PATTERN.search(path):
        raise ConfigError(
            f"{field} is {path!r}: Snakemake takes the {found[0][0]} in it for the beginning of a pattern. Rename the file or folder"
        )
