"""Make the environment of one framework from its lock file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.environments.create import create_environment
from ckptbench.scripting import run_script


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock", type=Path, help="envs/<name>.txt")
    parser.add_argument("folder", type=Path, help="the environment; replaced where it exists")
    parser.add_argument("--constraints", type=Path, required=True, help="for building from source")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    return run_script(
        lambda: create_environment(options.lock, options.constraints, options.folder.absolute()),
        options.log,
    )


if __name__ == "__main__":
    sys.exit(main())
