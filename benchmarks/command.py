"""Wall time of `ckptbench decide` ÷ that of Python with NumPy imported alone. The promise: the command answers within a second.

All are whole processes that run in turn on this machine: `python -c pass`, `python -c "import numpy"`, and the command with the
options of the README. The median of the command's seconds is what the promise is about; the ratio does not depend on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from ratio import report

COMMAND = Path(sys.executable).parent / "ckptbench"
OPTIONS = "--gpus 256 --step 2.5s --blocking 60s --async 3s+90s --restart 8min --now 2h"
ASKED = {"a number": ("--mtbf 14h", 2.5), "a published rate": ("--rate llama3", 6.0)}
"""Options, and the ratio that is promised."""
PROMISED_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    for name, (rate, promise) in ASKED.items():
        commands = [
            [str(COMMAND), "decide", *OPTIONS.split(), *rate.split()],
            [sys.executable, "-c", "import numpy"],
            [sys.executable, "-c", "pass"],
        ]
        runs = [[seconds(command) for command in commands] for _ in range(options.repeats)]
        answered, with_numpy, alone = (statistics.median(own) for own in zip(*runs, strict=True))
        print(f"ckptbench decide with {name}: {answered:.3f} s, promised: at most {PROMISED_S} s; python alone {alone:.3f} s, with NumPy {with_numpy:.3f} s")  # fmt: skip
        report([(run[0], run[1]) for run in runs], "command", "python with NumPy", promise=promise)


def seconds(command: list[str]) -> float:
    """How long the process takes."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
