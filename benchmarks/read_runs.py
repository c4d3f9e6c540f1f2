"""How fast run folders become tables: against `pandas.read_json(lines=True)` of the same traces.

The promise: collecting takes no more than twice as long, though it also checks every checksum, finds every
missing event and builds six tables with their types, where read_json gives one frame of raw events per trace.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "unit")]

from ratio import report  # noqa: E402
from run_folders import FakeRun, cell  # noqa: E402

from ckptbench.analysis.collect import collect  # noqa: E402

PROMISE = 2.0


def main() -> None:
    options = _parse()
    with tempfile.TemporaryDirectory() as folder:
        folders = _write_runs(Path(folder), options)
        traces = sorted(Path(folder).glob("*/trace-*.jsonl"))
        megabytes = sum(path.stat().st_size for path in traces) / 1e6
        print(f"{len(folders)} runs, {len(traces)} traces, {megabytes:.1f} MB")
        pairs = _interleaved(
            lambda: collect(folders),
            lambda: [pd.read_json(path, lines=True) for path in traces],
            options.repeats,
        )
    report(pairs, "collect", "read_json", promise=PROMISE)


def _write_runs(folder: Path, options: argparse.Namespace) -> list[Path]:
    """Runs with checkpoints of two ranks, times and losses with as many digits as real ones."""
    random = np.random.default_rng(0)
    return [
        FakeRun(
            cell=cell(ranks=2, epochs=options.epochs, repeat=repeat),
            steps_per_epoch=options.steps,
            step_s=lambda rank, step: random.uniform(0.09, 0.11),
            stall_s=lambda rank, step: random.uniform(0.4, 0.6),
            loss=lambda rank, step: random.uniform(0.0, 3.0),
        ).write(folder)
        for repeat in range(options.runs)
    ]


def _interleaved(
    ours: Callable[[], object], theirs: Callable[[], object], repeats: int
) -> list[tuple[float, float]]:
    """Seconds of each, in turns, so that both meet the same machine; one turn first that does not count."""
    return [(_seconds(ours), _seconds(theirs)) for _ in range(repeats + 1)][1:]


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=25, help="of an epoch")
    parser.add_argument("--repeats", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
