"""Trainings that tests run under `ckptbench-probe run`, and what came of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PYTORCH = ROOT / ".environments" / "pytorch" / "bin" / "python"
LIMIT_S = 300
CLOCK = re.compile(r"(?:took|blocked) ([\d.]+) s")
"""Of an example: how long its save took, by its own clock."""


@dataclass(frozen=True)
class Training:
    out: str
    told: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return content

    @property
    def by_own_clock_s(self) -> list[float]:
        return [float(found) for found in CLOCK.findall(self.out)]

    def events(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        """Of one rank."""
        for path in sorted(self.folder.glob("trace-*.jsonl")):
            events = [json.loads(line) for line in path.read_text().splitlines()]
            if (events[0]["rank"] or 0) == rank:
                return [event for event in events if event["event"] == kind]
        raise AssertionError(f"no trace of rank {rank} in {self.folder}")

    def blocked_s(self, rank: int = 0) -> list[float]:
        """How long each save of a rank took, by the probe."""
        ends = {event["save"]: event["end_ns"] for event in self.events("end", rank)}
        saves = self.events("save", rank)
        return [(ends[event["save"]] - event["start_ns"]) / 1e9 for event in saves]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "OMP_NUM_THREADS": "1"}


def plain(folder: Path, *command: str) -> str:
    """What the command prints without the probe."""
    return _run(folder, list(command)).stdout


def checked(folder: Path, verb: str, *words: str) -> dict[str, Any]:
    """What `ckptbench-probe check` writes of a training, in its folder."""
    command = [sys.executable, "-m", "ckptbench_probe.main", "check", verb, *words]
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    report = folder / "ckptbench-check" / f"{verb}.json"
    assert report.exists(), done.stderr
    content: dict[str, Any] = json.loads(report.read_text())
    assert done.returncode == content["exit_code"]
    return content


def probed(folder: Path, *command: str, options: tuple[str, ...] = ()) -> Training:
    """The command under the probe, in its folder."""
    words = [sys.executable, "-m", "ckptbench_probe.main", "run", "--folder", "seen", *options]
    done = _run(folder, [*words, "--", *command])
    return Training(done.stdout, done.stderr, folder / "seen")


def _run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def torchrun(*command: str, ranks: int = 2) -> list[str]:
    return [str(PYTORCH), "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *command]
