"""What the recorder and the question whether to stop cost a training loop. The promise: at most 0.5 %.

`ckptbench.audit.recorder_cost` measures it, and says how. `make audit` asks the same with fewer pairs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

# One thread, because the waits in a pool of threads would be noisier than the cost measured here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from ratio import report

from ckptbench.audit.recorder_cost import PROMISE, measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300, help="epochs of each loop")
    parser.add_argument("--steps", type=int, default=50, help="steps an epoch")
    parser.add_argument("--size", type=int, default=400, help="of the square matrices of a step")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pairs = measure(Path(folder), pairs=options.pairs, steps=options.steps, size=options.size)
    per_step = float(np.median([plain for _, plain in pairs])) / options.steps
    print(f"epochs of {options.steps} steps of {1e6 * per_step:.0f} us")
    report(pairs, "recorded", "plain", promise=1 + PROMISE)


if __name__ == "__main__":
    main()
