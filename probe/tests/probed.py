"""Programs that tests run under `ckptbench-probe run`, and what came of them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
TOLD = "ckptbench-probe: "
STAND_IN = """
def save_file(tensors, filename, metadata=None):
    with open(filename, "wb") as file:
        file.write(b"x" * 4096)
"""
"""A stand-in for `safetensors.torch`, as no framework is installed where these tests run."""


@functools.cache
def interpreters() -> list[str]:
    """Every Python from 3.9 to 3.14 that is installed, this one among them."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(9, 15):
        name = f"python3.{minor}"
        own = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/{name}"))
        for candidate in filter(None, [*map(str, own), shutil.which(name)]):
            if (3, minor) not in found and _runs(candidate):
                found[3, minor] = candidate
    return [found[version] for version in sorted(found)]


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Ended:
    """A command that was measured."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def told(self) -> list[str]:
        """Lines of the probe."""
        lines = self.err.splitlines()
        return [line[len(TOLD) :] for line in lines if line.startswith(TOLD)]

    def line(self, name: str) -> str:
        (found,) = (line for line in self.told if line.startswith(name))
        return found

    @property
    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return content

    @property
    def events(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("trace-*.jsonl"))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]


class Bench:
    """A folder with programs, and a stand-in for an engine."""

    def __init__(self, folder: Path, launcher: str = sys.executable) -> None:
        self.folder = folder
        self.launcher = launcher
        (folder / "safetensors").mkdir()
        (folder / "safetensors" / "__init__.py").touch()
        (folder / "safetensors" / "torch.py").write_text(STAND_IN)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**kept, **variables}

    def start(
        self, *command: str, options: tuple[str, ...] = (), **variables: str
    ) -> subprocess.Popen[str]:
        """Its standard error goes to a file, so that a test may wait for a line of standard output."""
        words = [
            *self.probe(),
            "run",
            "--folder",
            str(self.folder / "seen"),
            *options,
            "--",
            *command,
        ]
        with (self.folder / "stderr").open("w") as errors:
            return subprocess.Popen(
                words, cwd=self.folder, env=self.environment(**variables), text=True,
                stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def run(self, *command: str, options: tuple[str, ...] = (), **variables: str) -> Ended:
        return self.end(self.start(*command, options=options, **variables))

    def end(self, started: subprocess.Popen[str]) -> Ended:
        out, _ = started.communicate(timeout=120)
        err = (self.folder / "stderr").read_text()
        return Ended(started.returncode, out, err, self.folder / "seen")

    def probe(self) -> list[str]:
        """The command, of the source here."""
        program = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from ckptbench_probe.main import main; main()"
        return [self.launcher, "-I", "-c", program]
