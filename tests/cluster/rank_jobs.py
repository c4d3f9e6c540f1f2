"""Ranks in a real allocation: a job of the scheduler whose script is `rank_launcher.py`."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptbench.launch.starters import HANDED
from tests.cluster.commands import PATIENCE_S, check, poll, run

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = Path(__file__).with_name("rank_launcher.py")
PROBE = Path(__file__).with_name("rank_probe.py")
CHAINER = ROOT / ".environments" / "chainer" / "bin"
LINGER_S = 3 * PATIENCE_S
"""A job stays after its launcher has ended: who ends the ranks is then not the scheduler."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the launcher in the job is to do."""

    ranks: int
    accelerator: str = "cuda"
    acts: dict[str, str] = field(default_factory=lambda: {"others": "end"})
    """By rank, else `others`. After all have come up: `end`, `die`, `stay`; before: `vanish`, `sleep`."""
    python: str = sys.executable
    mpiexec: str | None = None
    impatient: bool = False
    """Give up as soon as a single rank is missing, not after minutes."""
    elsewhere: bool = False
    """Take none of the nodes for the launcher's own, so that every rank is started by the scheduler's means."""


def through_mpiexec(request: Request) -> Request:
    return dataclasses.replace(
        request, python=str(CHAINER / "python"), mpiexec=str(CHAINER / "mpiexec")
    )


class RankJob:
    """One such job, from its submission on."""

    def __init__(self, folder: Path, request: Request, submit: Sequence[str], cancel: str) -> None:
        """`submit` is a command that takes a script and prints the job's id."""
        self._folder = folder
        self._cancel = cancel
        folder.mkdir(parents=True)
        (folder / "request.json").write_text(json.dumps(dataclasses.asdict(request)))
        script = folder / "job.sh"
        script.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={ROOT / 'src'}\n"
            f"{sys.executable} {LAUNCHER} {shlex.quote(str(folder / 'request.json'))}\n"
            f"sleep {LINGER_S}\n"
        )
        self.output = folder / "output"
        self.id = check([*submit, str(script)], {}).strip()

    def found(self) -> list[dict[str, Any]]:
        """What the ranks that came up noted, in their order."""
        notes = [json.loads(path.read_text()) for path in self._folder.glob("found-*.json")]
        return sorted(notes, key=lambda note: note["rank"])

    def wait_for_ranks(self, ranks: int) -> None:
        assert poll(lambda: len(self.found()) == ranks), self.said()

    def error(self) -> str | None:
        """What the launcher raised; waits for its end."""
        assert poll((self._folder / "outcome.json").exists), self.said()
        outcome = json.loads((self._folder / "outcome.json").read_text())
        return str(outcome["error"]) if outcome["error"] else None

    def handed(self) -> list[Path]:
        """Files with the environment of ranks."""
        return list((self._folder / "logs").glob(HANDED))

    def launcher(self) -> int:
        """Its process id."""
        return int((self._folder / "launcher.pid").read_text())

    def processes(self) -> list[int]:
        """Process ids of the ranks that live, and of what started them: all nodes are on this machine."""
        return [
            int(process.name)
            for process in Path("/proc").glob("[0-9]*")
            if self._started_by_launcher(process)
        ]

    def _started_by_launcher(self, process: Path) -> bool:
        """Whether the probe and this job's folder are in its command line."""
        try:
            command = (process / "cmdline").read_text(errors="replace")
        except OSError:
            return False
        return PROBE.name in command and str(self._folder) in command

    def said(self) -> str:
        logs = [self.output, *sorted((self._folder / "logs").glob("*.log"))]
        texts = [f"{path.name}:\n{path.read_text()}" for path in logs if path.exists()]
        return f"job {self.id}: " + "\n".join(texts)

    def cancel(self) -> None:
        run([self._cancel, self.id], {})
