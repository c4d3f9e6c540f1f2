"""Write the folder of an environment that is there: the script that starts its Python, and what it has."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ckptbench.inputs.environments.present import PresentEnvironment


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="replaced where it exists")
    parser.add_argument(
        "--environment", type=json.loads, required=True, help="PresentEnvironment, as JSON"
    )


def main(options: argparse.Namespace) -> None:
    PresentEnvironment.from_json(options.environment).write(options.folder.absolute())
