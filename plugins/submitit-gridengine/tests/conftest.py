from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from submitit_gridengine import GridEngineInfoWatcher, GridEngineJob

Answer = Callable[..., None]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Makes a program that prints a text and ends with a status, and writes how it was called to the file `calls`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def make(name: str, text: str, status: int = 0) -> None:
        (programs / f"{name}.answer").write_text(text)
        lines = [
            "#!/bin/sh",
            f'echo "{name} $*" >> {tmp_path}/calls',
            'cat "$0.answer"',
            f"exit {status}",
        ]
        (programs / name).write_text("\n".join([*lines, ""]))
        (programs / name).chmod(0o755)

    return make


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[str]]:
    """How the programs were called, since the last time this was asked."""

    def take() -> list[str]:
        file = tmp_path / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    return take


@pytest.fixture(autouse=True)
def watcher(monkeypatch: pytest.MonkeyPatch) -> GridEngineInfoWatcher:
    """A watcher that knows of no other test's jobs."""
    fresh = GridEngineInfoWatcher()
    monkeypatch.setattr(GridEngineJob, "watcher", fresh)
    return fresh


@pytest.fixture
def data() -> Path:
    return Path(__file__).parent / "data"
