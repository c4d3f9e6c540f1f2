"""What the probe saw of each run of an own training, and whether its times count."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ckptbench.common.errors import RunFolderError
from ckptbench.own.cell import OwnCell
from ckptbench.own.record import PROBE, OwnRun, read_run
from ckptbench_probe.measures import (
    FIRST_GAPS,
    Checkpoint,
    Measures,
    attempts_of,
    measure,
    quiet_gaps_s,
)
from ckptbench_probe.reading import ProcessSeen, Run, UnreadableError, read

WARMUP_STEPS = FIRST_GAPS + 1
"""Steps at the start that no time is taken from, as the probe leaves out so many gaps between updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRun:
    """One run, whether it went well or not."""

    done: OwnRun
    run: Run
    """Its traces."""
    measures: Measures

    @property
    def cell(self) -> OwnCell:
        return self.done.cell

    @property
    def ranks(self) -> list[ProcessSeen]:
        """Those of the first start, in their order; empty where nothing trained."""
        starts = attempts_of(self.run)
        return starts[0] if starts else []

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """Those that were saved without an error."""
        return [one for one in self.measures.checkpoints if not one.failed]

    @property
    def untimed(self) -> str:
        """Why its times do not count. Empty: they do."""
        if not self.ranks:
            return "no rank reported to the probe"
        if self.measures.attempts > 1:
            return "its training was started more than once"
        if self.measures.killed:
            return "a rank was killed"
        if self.measures.updates <= WARMUP_STEPS:
            return f"it has {self.measures.updates} steps, and the first {WARMUP_STEPS} count for nothing"
        if len(quiet_gaps_s(self.ranks[0])) == 0:
            return "a save was under way in every step: save less often"
        return ""

    @property
    def script(self) -> str:
        """The name of what trains: `train.py`."""
        command = self.ranks[0].command if self.ranks else ()
        return os.path.basename(command[0]) if command else ""


def read_runs(folders: Iterable[Path]) -> list[SeenRun]:
    """Raises RunFolderError at the first folder that is not a result."""
    return [_seen(read_run(folder)) for folder in folders]


def _seen(done: OwnRun) -> SeenRun:
    try:
        run = read(done.folder / PROBE, done.summary.get("run"))
    except UnreadableError as error:
        raise RunFolderError(str(error)) from error
    return SeenRun(done=done, run=run, measures=measure(run))
