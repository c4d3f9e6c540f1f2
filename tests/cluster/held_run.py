"""A study of one run that is held still until it is told to stop, or a node dies: however fast the machine, that is half-way."""

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
from tests.cluster.studies import said, state, vary
from tests.study.checkout import Checkout, ranks_of

EPOCHS = 12
"""Enough for three stops and the end."""
STEPS_PER_EPOCH = 40
HELD_AFTER = 2
"""Epochs of every rank, since it started again."""
TARGET = "results/tables/runs.parquet"
REQUEST = ": saving a checkpoint"
"""What its launcher says when it is told to stop."""


def one_run(checkout: Checkout, framework: str, interval: int | str) -> str:
    """A study file of a single cell. With the interval `never` it is a baseline, which writes no checkpoint unless it is told to stop."""
    matrix = {"framework": framework, "ranks": 2, "interval": interval, "epochs": EPOCHS}
    training = {"steps_per_epoch": STEPS_PER_EPOCH, "test_samples": 16}
    return vary(checkout, {**matrix, "deterministic": True}, training, repeats=1)


@dataclass
class HeldRun:
    """The only run of a study that has been started in `checkout`."""

    checkout: Checkout
    study: subprocess.Popen[bytes]
    held: tuple[int, ...] = ()
    """Its ranks' process ids, while they are held."""
    stops: int = 1
    """How often it is to be told to stop."""
    told: int = 0
    """How often it was."""
    when_told: Callable[[Checkout], None] | None = None
    """What is to be done as soon as it has been told to stop."""
    lost: tuple[str, ...] = ()
    """Its nodes that died, in this order."""
    _starts: int = 0
    """How often it had started when it was held last."""
    _requests: int = 0
    """How often it had been told to stop by then."""

    @property
    def folder(self) -> Path | None:
        return next((self.checkout.folder / "results" / "runs").glob("*"), None)

    def look(self) -> None:
        """Hold the ranks as soon as they have trained a while; let them go on as soon as they are told to stop."""
        if self.told == self.stops:
            return
        if not self.held and self._has_trained_a_while():
            self._requests = self._launcher_said().count(REQUEST)
            self.held = tuple(ranks_of(self.checkout.folder))
            self._signal(signal.SIGSTOP)
        elif self.held and self._launcher_said().count(REQUEST) > self._requests:
            self.told += 1
            self.let_go()
            if self.when_told:
                self.when_told(self.checkout)

    def let_go(self) -> None:
        self._signal(signal.SIGCONT)
        self.held = ()

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
        epochs = [epochs_of_attempts(trace) for trace in self.traces()]
        starts = min((len(each) for each in epochs), default=0)
        trained = (
            len(epochs) == 2
            and starts > self._starts
            and min(each[-1] for each in epochs) >= HELD_AFTER
        )
        if trained:
            self._starts = starts
        return trained

    def _launcher_said(self) -> str:
        logs = (self.checkout.folder / "results" / "logs" / "train_cell").glob("*.log")
        return "".join(path.read_text() for path in logs)

    def _signal(self, number: signal.Signals) -> None:
        for rank in self.held:
            with suppress(ProcessLookupError):
                os.kill(rank, number)


def epochs_of_attempts(trace: list[dict[str, Any]]) -> list[int]:
    """How many epochs each attempt has made, by the trace of a rank."""
    epochs: list[set[int]] = []
    for event in trace:
        if event["event"] == "start":
            epochs.append(set())
        elif event["event"] == "epoch":  # twice, where a checkpoint ends it
            epochs[-1].add(event["epoch"])
    return [*map(len, epochs)]


def whole_lines(text: str) -> list[str]:
    """Without the last where it is still being written."""
    return text[: text.rfind("\n") + 1].splitlines()


def hold(runs: Collection[HeldRun], timeout_s: float) -> None:
    """Wait until all have come so far that they are held."""
    _look_until(runs, lambda run: bool(run.held), timeout_s)


def let_go_when_told_to_stop(runs: Collection[HeldRun], timeout_s: float) -> None:
    """Wait until all have been told to stop as often as they are to be, and let each go on as soon as it is."""
    _look_until(runs, lambda run: run.told == run.stops, timeout_s)


def _look_until(
    runs: Collection[HeldRun], condition: Callable[[HeldRun], bool], timeout_s: float
) -> None:
    def all_are() -> bool:
        for run in runs:
            run.look()
            assert run.told == run.stops or run.study.poll() is None, said(run.checkout)
        return all(condition(run) for run in runs)

    late = [run for run in runs if not condition(run)] if not poll(all_are, timeout_s, 0.1) else []
    assert not late, "\n".join(state(run.checkout) for run in late)
