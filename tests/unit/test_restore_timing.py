"""The timed parts of a restore."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckptbench.training import restore


@pytest.mark.parametrize("first_of_node", [True, False])
def test_no_rank_looks_before_the_first_of_its_node_has_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, first_of_node: bool
) -> None:
    done: list[str] = []
    monkeypatch.setattr(restore.page_cache, "evict", lambda _: done.append("evict"))
    monkeypatch.setattr(restore.page_cache, "resident_bytes", lambda _: done.append("look") or 5)
    version: Any = SimpleNamespace(folder=tmp_path, files=["a"])
    phase = restore.evict(
        version, first_of_node=first_of_node, barrier=lambda: done.append("barrier")
    )
    assert done == [*(["evict"] if first_of_node else []), "barrier", "look"]
    assert (phase.name, phase.resident_bytes) == ("evict", 5)
