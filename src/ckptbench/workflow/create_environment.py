"""Make the environment of one framework from its lock file."""

from __future__ import annotations

import argparse
from pathlib import Path

from ckptbench.common.processes import die_with_parent
from ckptbench.inputs.environments.create import create_environment
from ckptbench.workflow.frame import add_shared


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--parent")
    parser.add_argument("lock", type=Path, help="envs/<name>.txt")
    parser.add_argument("folder", type=Path, help="the environment; replaced where it exists")
    parser.add_argument("--constraints", type=Path, required=True, help="for building from source")


def main(options: argparse.Namespace) -> None:
    die_with_parent(options.parent)
    create_environment(options.lock, options.constraints, options.folder.absolute())
