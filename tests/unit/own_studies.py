"""Run folders of an own training, with traces that are written by hand: every time in them is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ckptbench.common.files import write_json
from ckptbench.decide import advice
from ckptbench.decide.rates import read_rate
from ckptbench.own.cell import OwnCell
from ckptbench.own.record import PROBE, RUN, SUMMARY, seal
from ckptbench.own.seen import read_runs
from ckptbench.own.study import own_tables
from ckptbench.report.commands.tables import usual
from probe.tests.traces import Written

HOST = {
    "host": "node0", "kernel": "6.1", "cpu": "a CPU", "cores": 2, "memory_bytes": 10**9, "gpus": [], "checkpoint_file_system": "ext4",
    "scheduler_job": None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Training:
    """Steps of `step_s` on each rank. A save stalls all of them so long, and the gap that it is in is longer by `hidden_s`; its engine says
    after `finished_s` that it is finished (None: when its call returns)."""

    steps: int = 22
    every: int = 0
    step_s: float = 1.0
    stall_s: float = 0.5
    hidden_s: float = 0.25
    finished_s: float | None = None
    clean_s: float | None = None
    pause_s: float = 0.0
    """After each fifth step, before its save, as of an evaluation."""
    first_s: float = 0.0
    """By which the first save stalls longer."""
    ranks: int = 1

    def into(self, folder: Path) -> None:
        for rank in range(self.ranks):
            self._rank(rank).into(folder)

    def _rank(self, rank: int) -> Written:
        written, at = Written(rank=rank, ranks=self.ranks, pid=100 + rank), 0.0
        moments: list[float] = []
        saves: list[tuple[float, float, int]] = []
        for step in range(1, self.steps + 1):
            at += self.step_s
            moments.append(at)
            at += self.pause_s if step % 5 == 0 else 0.0
            if self.every and step % self.every == 0:
                stall_s = self.stall_s + (0.0 if saves else self.first_s)
                saves.append((at, stall_s, step))
                at += stall_s + self.hidden_s
        written.updates(*moments)
        for begun, stall_s, step in saves:
            end = begun + stall_s
            finished = end if self.finished_s is None else begun + self.finished_s
            clean = None if self.clean_s is None else begun + self.clean_s
            written.save(begun, end, finished=finished, after=step, clean=clean, size=8 * 10**6, path=f"/c/{step}-{rank}.pt")  # fmt: skip
        return written.ended(at + 1)


def baseline(repeat: int = 0, **values: str) -> OwnCell:
    parts = ["baseline", *(f"{name}_{label}" for name, label in values.items()), f"rep{repeat}"]
    cell_id = "-".join(parts)
    return OwnCell(id=cell_id, values=values, repeat=repeat, is_baseline=True, baseline=cell_id, command="python train.py {folder}")  # fmt: skip


def cell(interval: int, repeat: int = 0, **values: str) -> OwnCell:
    every = {**values, "interval": str(interval)}
    cell_id = "-".join([*(f"{name}_{label}" for name, label in every.items()), f"rep{repeat}"])
    return OwnCell(
        id=cell_id,
        values=every,
        repeat=repeat,
        is_baseline=False,
        baseline=baseline(repeat, **values).id,
        command="python train.py {folder}",
    )


def write_run(runs: Path, own: OwnCell, training: Training, **changes: Any) -> Path:
    folder = runs / own.id
    (folder / PROBE).mkdir(parents=True)
    training.into(folder / PROBE)
    write_json(folder / PROBE / SUMMARY, {"run": "run"})
    content = {
        "format": 1, "status": "complete", "cell": own.to_json(), "measured_on": "cpu", "host": HOST, "wall_s": 30.0, "started_unix_s": 1.7e9,
        "ended_unix_s": 1.7e9 + 30, "others": 0.0, "stolen": 0.0,
    }  # fmt: skip
    write_json(folder / RUN, {**content, **changes})
    seal(folder)
    return folder


def tables_of(folders: Iterable[Path], rate: str = "llama3") -> dict[str, pd.DataFrame]:
    """With the projection to a few GPUs alone, which takes as long as all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice, "MOST_GPUS", 4)
        return own_tables(read_runs(sorted(folders)), [read_rate(rate)], usual(rate=rate))
