"""Prepare one dataset in a folder that training reads.

`digits` needs scikit-learn: run this script in the environment of the lock envs/data.txt.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

from ckptbench.data.sources import DATASETS, prepare
from ckptbench.scripting import run_script

log = logging.getLogger("ckptbench")


def main() -> int:
    options = _parse()

    def work() -> None:
        dataset = prepare(options.name, options.folder, options.settings)
        log.info(
            "%s: %d training and %d test images of %s, %d classes",
            options.folder,
            len(dataset.train_labels),
            len(dataset.test_labels),
            "x".join(map(str, dataset.image_shape)),
            dataset.classes,
        )

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=DATASETS, help="which dataset")
    parser.add_argument("folder", type=Path, help="folder to write to; made if it is missing")
    parser.add_argument(
        "--settings",
        type=_json_object,
        default={},
        help="the dataset's section of the config, as JSON",
    )
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


def _json_object(text: str) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text}")
    return settings


if __name__ == "__main__":
    sys.exit(main())
