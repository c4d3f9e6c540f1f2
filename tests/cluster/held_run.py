"""A study of one run that is held still until it is told to stop: however fast the machine, it is stopped half-way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench.common.files import read_json
from tests.cluster.commands import poll
from tests.cluster.studies import said, vary
from tests.study.checkout import Checkout, ranks_of

EPOCHS = 8
STEPS_PER_EPOCH = 40
HELD_AFTER = 2
"""Epochs of every rank."""
TARGET = "results/tables/runs.parquet"


def one_run(checkout: Checkout, framework: str) -> str:
    """A study file of a single cell: a baseline, which writes no checkpoint unless it is told to stop."""
    matrix = {"framework": framework, "ranks": 2, "interval": "never", "epochs": EPOCHS}
    training = {"steps_per_epoch": STEPS_PER_EPOCH, "test_samples": 16}
    return vary(checkout, {**matrix, "deterministic": True}, training, repeats=1)


@dataclass
class HeldRun:
    """The only run of a study that has been started in `checkout`."""

    checkout: Checkout
    study: subprocess.Popen[bytes]
    held: tuple[int, ...] = ()
    """Its ranks' process ids, while they are held."""
    told: bool = False
    when_told: Callable[[Checkout], None] | None = None
    """What is to be done as soon as it has been told to stop."""

    @property
    def folder(self) -> Path | None:
        return next((self.checkout.folder / "results" / "runs").glob("*"), None)

    def look(self) -> None:
        """Hold the ranks as soon as they have trained a while; let them go on as soon as they are told to stop."""
        if self.told:
            return
        if not self.held and self._has_trained_a_while():
            self.held = tuple(ranks_of(self.checkout.folder))
            self._signal(signal.SIGSTOP)
        elif self.held and ": a checkpoint follows" in self._launcher_said():
            self.told = True
            self._signal(signal.SIGCONT)
            if self.when_told:
                self.when_told(self.checkout)

    def digests(self) -> list[dict[str, str]]:
        """Of every tensor in the end, by rank."""
        return [
            [e["tensors"] for e in trace if e["event"] == "digest"][-1] for trace in self.traces()
        ]

    def traces(self) -> list[list[dict[str, Any]]]:
        """The events of each rank that has come up."""
        paths = sorted(self.folder.glob("trace-*.jsonl")) if self.folder else []
        return [[json.loads(line) for line in whole_lines(path.read_text())] for path in paths]

    def nodes(self) -> list[str]:
        """Of its ranks, in their order."""
        return [[e["host"] for e in trace if e["event"] == "start"][-1] for trace in self.traces()]

    def manifest(self) -> dict[str, Any]:
        assert self.folder is not None
        return read_json(self.folder / "manifest.json")

    def _has_trained_a_while(self) -> bool:
        traces = self.traces()
        epochs = [sum(event["event"] == "epoch" for event in trace) for trace in traces]
        return len(epochs) == 2 and min(epochs) >= HELD_AFTER

    def _launcher_said(self) -> str:
        logs = (self.checkout.folder / "results" / "logs" / "train_cell").glob("*.log")
        return "".join(path.read_text() for path in logs)

    def _signal(self, number: signal.Signals) -> None:
        for rank in self.held:
            with suppress(ProcessLookupError):
                os.kill(rank, number)


def whole_lines(text: str) -> list[str]:
    """Without the last where it is still being written."""
    return text[: text.rfind("\n") + 1].splitlines()


def hold(runs: Collection[HeldRun], timeout_s: float) -> None:
    """Wait until all have come so far that they are held."""
    _look_until(runs, lambda run: bool(run.held), timeout_s)


def let_go_when_told_to_stop(runs: Collection[HeldRun], timeout_s: float) -> None:
    """Wait until all have been told to stop, and let each go on as soon as it is."""
    _look_until(runs, lambda run: run.told, timeout_s)


def _look_until(
    runs: Collection[HeldRun], condition: Callable[[HeldRun], bool], timeout_s: float
) -> None:
    def all_are() -> bool:
        for run in runs:
            run.look()
            assert run.told or run.study.poll() is None, said(run.checkout)
        return all(condition(run) for run in runs)

    late = [run for run in runs if not condition(run)] if not poll(all_are, timeout_s, 0.1) else []
    assert not late, "\n".join(said(run.checkout) for run in late)
