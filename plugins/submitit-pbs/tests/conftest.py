from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from submitit_pbs import PbsInfoWatcher, PbsJob


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes commands of PBS that print a text and end with a status.

    How they were called is in the file `calls`, what they read in `NAME.stdin`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name: str, prints: str = "", status: int = 0, complains: str = "") -> Path:
        (folder / f"{name}.prints").write_text(prints)
        (folder / name).write_text(
            f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n'
            f"[ -t 0 ] || cat > {tmp_path}/{name}.stdin\n"
            f'cat $0.prints\necho "{complains}" >&2\nexit {status}\n'
        )
        (folder / name).chmod(0o755)
        return tmp_path / f"{name}.stdin"

    return make


@pytest.fixture(autouse=True)
def watcher(monkeypatch: pytest.MonkeyPatch) -> PbsInfoWatcher:
    """A watcher that knows of no other test's jobs."""
    fresh = PbsInfoWatcher()
    monkeypatch.setattr(PbsJob, "watcher", fresh)
    return fresh


@pytest.fixture
def data() -> Path:
    return Path(__file__).parent / "data"
