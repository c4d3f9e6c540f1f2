"""Prepare one dataset in a folder that training reads.

`digits` needs scikit-learn: run this in the environment of the lock envs/data.txt.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

from ckptbench.inputs.datasets.sources import DATASETS, prepare

log = logging.getLogger("ckptbench")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=DATASETS, help="which dataset")
    parser.add_argument("folder", type=Path, help="folder to write to; made if it is missing")
    settings = "the dataset's section of the config, as JSON"
    parser.add_argument("--settings", type=json.loads, default={}, help=settings)


def main(options: argparse.Namespace) -> None:
    dataset = prepare(options.name, options.folder, options.settings)
    shape = "x".join(map(str, dataset.sample_shape))
    counts = f"{len(dataset.train_labels)} training and {len(dataset.test_labels)} test samples"
    log.info("%s: %s of %s, %d classes", options.folder, counts, shape, dataset.classes)
