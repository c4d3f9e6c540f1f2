"""Prepare one dataset in a folder that training reads.

`digits` needs scikit-learn: run this script in the environment of the lock envs/data.txt.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from ckptbench.data.sources import DATASETS, prepare
from ckptbench.scripting import parser_of, run_script

log = logging.getLogger("ckptbench")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("name", choices=DATASETS, help="which dataset")
    parser.add_argument("folder", type=Path, help="folder to write to; made if it is missing")
    parser.add_argument(
        "--settings",
        type=json.loads,
        default={},
        help="the dataset's section of the config, as JSON",
    )
    options = parser.parse_args()

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


if __name__ == "__main__":
    sys.exit(main())
