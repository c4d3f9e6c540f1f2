"""How fast run folders become tables and figures, against pandas on the same files. The promise: at most twice its time.

Two ratios of one run, taken in turns:

- Reading. Ours is `collect`: it also checks every checksum, finds every missing event and builds typed tables. Theirs is
  `pandas.read_json(lines=True)` on every trace, which gives one frame of raw events for each trace and nothing else.
- The whole path. Ours is the work of the workflow from run folders to figures, in one process: it collects, writes the
  tables and reads them, derives all tables with their intervals, writes them, and draws every figure for which
  these runs have data. Theirs is `plain_pandas`: code that someone would write in a notebook to see the cost of
  checkpoints. It reads manifests and traces, joins the events to one frame, explodes the steps, and computes by group the
  training time of each run, its stalls and its step period. From these it computes the overhead of each setup. It checks
  nothing, has no intervals, and writes and draws nothing. Both must find the same overhead.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "unit")]

from ratio import report  # noqa: E402
from run_folders import FakeRun, cell  # noqa: E402

from ckptbench.analysis.collect.runs import collect  # noqa: E402
from ckptbench.analysis.derive import derive  # noqa: E402
from ckptbench.analysis.tables.columns import SETUP, SYSTEM  # noqa: E402
from ckptbench.analysis.tables.registry import COLLECTED, TABLES  # noqa: E402
from ckptbench.analysis.tables.store import read_tables, write_tables  # noqa: E402
from ckptbench.matrix.cell import Cell  # noqa: E402
from ckptbench.report.figures import FIGURES  # noqa: E402
from ckptbench.report.figures.files import write_figure  # noqa: E402

PROMISE = 2.0
INTERVALS = ("never", "e1", "e2", "e5")
FORMATS = {"pytorch": "torch_save", "chainer": "npz", "tensorflow": "tf_checkpoint"}
FIRST_REPEATS = 3
"""Repeats of the first system that are read before anything is timed, so that every module is imported."""


@dataclass(frozen=True, slots=True)
class Laps:
    """Seconds of each part of the work, by its name, in order."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    @property
    def whole_s(self) -> float:
        return sum(self.seconds.values())

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())


def main() -> None:
    options = _parse()
    cells = _cells(options)
    with tempfile.TemporaryDirectory() as scratch:
        runs, made = Path(scratch) / "runs", options.keep or Path(scratch) / "made"
        folders = _write_runs(runs, cells, options)
        traces = list(runs.glob("*/trace-*.jsonl"))
        megabytes = sum(path.stat().st_size for path in traces) / 1e6
        setups = len({tuple(_setup(cell).values()) for cell in cells})
        print(f"{len(folders)} runs of {setups} setups, {len(traces)} traces, {megabytes:.1f} MB")
        few = [
            folder
            for folder, each in zip(folders, cells, strict=True)
            if each.repeat < FIRST_REPEATS and each.batch_size == cells[0].batch_size
        ]
        tables_and_figures(few, cells, made)
        plain_pandas(few)
        turns = []
        for _ in range(options.repeats):
            ours, tables = tables_and_figures(folders, cells, made)
            print(f"  ours: {ours}", flush=True)
            theirs, overhead = plain_pandas(folders)
            print(f"  pandas: {theirs}", flush=True)
            _check_same(tables["overhead"], overhead)
            turns.append((ours, theirs))
    reading = [(ours.seconds["collect"], theirs.seconds["read_json"]) for ours, theirs in turns]
    report(reading, "collect", "read_json", promise=PROMISE)
    whole = [(ours.whole_s, theirs.whole_s) for ours, theirs in turns]
    report(whole, "tables and figures", "plain pandas", promise=PROMISE)


def tables_and_figures(
    folders: list[Path], cells: list[Cell], made: Path
) -> tuple[Laps, dict[str, pd.DataFrame]]:
    laps = Laps()
    with laps.lap("collect"):
        raw = collect(folders)
    with laps.lap("write and read tables"):
        write_tables(made, raw)
        raw = read_tables(made, COLLECTED)
    with laps.lap("derive"):
        derived = derive(raw)
        write_tables(made, derived)
    del raw
    for name, entry in FIGURES.items():
        # Those of the decision need more than run folders.
        if TABLES.keys() >= {*entry.tables} and entry.is_of(cells):
            with laps.lap(f"figure {name}"):
                write_figure(name, made, made / name)
    return laps, derived


def plain_pandas(folders: list[Path]) -> tuple[Laps, pd.DataFrame]:
    """The overhead of each setup by plain pandas; see the module's docstring."""
    laps = Laps()
    with laps.lap("read_json"):
        traces = [path for folder in folders for path in folder.glob("trace-*.jsonl")]
        frames = [pd.read_json(path, lines=True) for path in traces]
    with laps.lap("join"):
        manifests = [json.loads((folder / "manifest.json").read_text()) for folder in folders]
        runs = pd.json_normalize(manifests)
        runs.columns = runs.columns.str.removeprefix("cell.")
        events = pd.concat(
            [
                frame.assign(run=path.parent.name, rank=int(path.stem.removeprefix("trace-")))
                for path, frame in zip(traces, frames, strict=True)
            ],
            ignore_index=True,
        )
    with laps.lap("group"):
        overhead = _overhead(runs, events)
    return laps, overhead


def _overhead(runs: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    blocks = events.loc[
        events["event"] == "steps", ["run", "rank", "epoch", "start_ns", "end_ns", "loss"]
    ]
    steps = blocks.explode(["start_ns", "end_ns", "loss"], ignore_index=True)
    steps = steps.astype({"start_ns": "int64", "end_ns": "int64", "loss": "float64"})
    steps["duration_s"] = (steps["end_ns"] - steps["start_ns"]) / 1e9
    single = events[events["event"].isin(["epoch", "save"])].copy()
    single["duration_s"] = (single["end_ns"] - single["start_ns"]).astype("float64") / 1e9
    epochs = single[single["event"] == "epoch"]
    checkpoints = single[single["event"] == "save"]
    measured = pd.DataFrame(
        {
            "time_s": epochs.groupby(["run", "epoch"])["duration_s"].max().groupby("run").sum(),
            "stall_s": checkpoints.groupby(["run", "step"])["duration_s"]
            .max()
            .groupby("run")
            .sum(),
            "period_s": steps[steps["rank"] == 0].groupby("run")["duration_s"].mean(),
            "steps": steps[steps["rank"] == 0].groupby("run").size(),
            "loss": steps.groupby("run")["loss"].mean(),
        }
    )
    timed = runs.merge(measured, left_on="cell_id", right_index=True)
    is_baseline = timed["interval"] == "never"
    baselines = timed.loc[is_baseline, [*SYSTEM, "repeat", "time_s"]]
    paired = timed[~is_baseline].merge(
        baselines, on=[*SYSTEM, "repeat"], suffixes=("", "_baseline")
    )
    paired["lost_s"] = paired["stall_s"]
    paired["work_s"] = paired["period_s"] * paired["steps"]
    columns = ["time_s", "time_s_baseline", "lost_s", "work_s"]
    sums = paired.groupby(list(SETUP))[columns].sum().reset_index()
    sums["paired"] = sums["time_s"] / sums["time_s_baseline"] - 1
    sums["in_run"] = sums["lost_s"] / sums["work_s"]
    return sums


def _check_same(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    both = ours.merge(theirs, on=list(SETUP), suffixes=("", "_theirs"), validate="one_to_one")
    assert len(both) == len(ours) == len(theirs)
    for estimate in ("paired", "in_run"):
        np.testing.assert_allclose(both[estimate], both[f"{estimate}_theirs"], rtol=1e-6)


def _cells(options: argparse.Namespace) -> list[Cell]:
    """Cells of about as many runs and setups as asked for. Every system has its baseline."""
    systems = [
        {"framework": framework, "batch_size": 8 * number}
        for number, framework in itertools.product(range(1, options.setups + 1), FORMATS)
    ][: max(1, options.setups // len(INTERVALS))]
    repeats = max(1, options.runs // (len(systems) * len(INTERVALS)))
    return [
        cell(interval, ranks=2, epochs=options.epochs, repeat=repeat, **_format(interval, system))
        for system, interval, repeat in itertools.product(systems, INTERVALS, range(repeats))
    ]


def _format(interval: str, system: dict[str, object]) -> dict[str, object]:
    if interval == "never":
        return system
    return {**system, "format": FORMATS[str(system["framework"])]}


def _setup(cell: Cell) -> dict[str, object]:
    return {name: value for name, value in cell.to_json().items() if name != "repeat"}


def _write_runs(folder: Path, cells: list[Cell], options: argparse.Namespace) -> list[Path]:
    """Write run folders of two ranks. Their times and losses have as many digits as real ones."""
    random = np.random.default_rng(0)
    return [
        FakeRun(
            cell=each,
            steps_per_epoch=options.steps,
            step_s=lambda rank, step: random.uniform(0.09, 0.11),
            stall_s=lambda rank, step: random.uniform(0.4, 0.6),
            loss=lambda rank, step: random.uniform(0.0, 3.0),
        ).write(folder)
        for each in cells
    ]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--setups", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=25, help="of an epoch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder to leave the tables and figures in")
    return parser.parse_args()


if __name__ == "__main__":
    main()
