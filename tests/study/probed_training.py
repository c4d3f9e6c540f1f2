"""Trainings that tests run under `ckptbench-probe run`, and what came of them."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench_probe.launcher import ARMED
from ckptbench_probe.variables import CHECK, DATA
from tests.study.warm.environments import COLD, warm_python

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LIMIT_S = 300
PROBE = [sys.executable, "-m", "ckptbench_probe.main"]
IMPORTED = {
    "pytorch": ("torch._dynamo", "torch.distributed.checkpoint.state_dict", "torch.distributed.run", "safetensors.torch"),
    "trainers": ("torch._dynamo", "torch.distributed.run", "lightning.pytorch", "transformers.trainer", "accelerate"),
    "tensorflow": ("keras",),
    "jax": ("orbax.checkpoint", "optax"),
}  # fmt: skip
"""By environment: what its trainings spend most of their time with before they begin."""
ARMED_BY = {
    "plain": {"PYTHONPATH": "", CHECK: ""},
    "run": {"PYTHONPATH": str(ARMED), CHECK: ""},
    "check resume": {"PYTHONPATH": str(ARMED), CHECK: "resume"},
    "check resume --data": {"PYTHONPATH": str(ARMED), CHECK: "resume", DATA: "1"},
    "check saves": {"PYTHONPATH": str(ARMED), CHECK: "saves"},
}
"""By verb of the probe: the variables with which it starts a process that it arms."""
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


def cold(environment: str) -> str:
    """The interpreter of an environment, which the probe arms at its start."""
    return str(COLD / environment / "bin" / "python")


@functools.cache
def warm(environment: str, verb: str) -> str:
    """One whose programs are forked from a process that was armed at its start, and has then imported the engines.

    The probe arms a process in the same way whatever it runs, so only some tests start their trainings cold.
    """
    return str(warm_python(environment, IMPORTED[environment], ARMED_BY[verb]))


def plain(folder: Path, *command: str) -> str:
    """What the command prints without the probe."""
    done = run(folder, list(command))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Checked:
    out: str
    told: str
    report: dict[str, Any]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def checked(folder: Path, verb: str, *words: str) -> Checked:
    """`ckptbench-probe check` of a training, in its folder."""
    done = run(folder, [*PROBE, "check", verb, *words])
    path = folder / "ckptbench-check" / f"{verb}.json"
    assert path.exists(), done.stderr
    report = json.loads(path.read_text())
    assert done.returncode == report["exit_code"]
    return Checked(done.stdout, done.stderr, report)


def probed(folder: Path, *command: str, options: tuple[str, ...] = (), code: int = 0) -> Training:
    """The command under the probe, in its folder. It ends with this exit code."""
    done = run(folder, [*PROBE, "run", "--folder", "seen", *options, "--", *command])
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return Training(done.stdout, done.stderr, folder / "seen")


def run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command, cwd=folder, env={**kept, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def torchrun(python: str, *command: str, ranks: int = 2, launcher: str | None = None) -> list[str]:
    """`launcher`: the interpreter of torchrun itself, if it is another than that of the ranks."""
    own = ["env", f"PYTHON_EXEC={python}", launcher or python]
    return [*own, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *command]
