"""Is a cold read cold? Evicted files must come from storage, and files in the page cache must not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from ckptbench.audit.check import NOTHING, Check, Words, against_limit, exactly
from ckptbench.machine import page_cache

SIZE = 64 * 2**20
COLD, WARM = 0.9, 0.1
"""Parts of a file: at least so much comes from storage in a cold read, and at most so much in a warm one."""


def checks(folder: Path, tables: Mapping[str, pd.DataFrame], *, size: int = SIZE) -> list[Check]:
    """Of a file in `folder`, and of the restarts in the study's table `restore`."""
    path = folder / "audit-reads.bin"
    try:
        path.write_bytes(np.random.default_rng(0).bytes(size))
        page_cache.evict([path])
        cold, warm = _fetched(path, size), _fetched(path, size)
    finally:
        path.unlink(missing_ok=True)
    return [_cold(cold), _warm(warm, cold), *_of_study(tables)]


def _fetched(path: Path, size: int) -> float:
    """Part of the file that came from storage while it was read; NaN if the kernel does not count."""
    before = page_cache.read_bytes()
    path.read_bytes()
    after = page_cache.read_bytes()
    return math.nan if before is None or after is None else (after - before) / size


def _cold(part: float) -> Check:
    return against_limit(
        "cold reads",
        "part of an evicted file that comes from storage",
        NOTHING if math.isnan(part) else exactly(part),
        limit=COLD,
        at_most=False,
        unit="1",
        words=Words(
            holds="cold restarts read from storage here",
            fails="an evicted file is read from memory, or the kernel does not count the reads of this file system: no restart here is shown to be cold",
            unknown="the kernel does not tell how much a process reads: no restart here is shown to be cold",
        ),
    )


def _warm(part: float, cold: float) -> Check:
    """Only where the kernel counts is a small number a finding."""
    counts = not math.isnan(part) and cold >= COLD
    return against_limit(
        "cold reads",
        "part of a file just read that comes from storage again",
        exactly(part) if counts else NOTHING,
        limit=WARM,
        at_most=True,
        unit="1",
        words=Words(
            holds="warm restarts read from memory here",
            fails="what was just read is gone from memory: warm restarts are not warm here",
            unknown="reads from storage are not seen here, so a warm read looks like a cold one",
        ),
    )


def _of_study(tables: Mapping[str, pd.DataFrame]) -> list[Check]:
    """Of the study's own restarts; none if it has none."""
    restore = tables.get("restore")
    if restore is None or restore.empty:
        return []
    shown = restore["cold_shown"]
    wrong = restore[~(shown.fillna(False).astype(bool))]
    parts = exactly(1 - len(wrong) / len(restore)) if shown.notna().any() else NOTHING
    return [
        against_limit(
            "cold reads",
            "part of the study's restarts whose reads were as cold or warm as asked",
            parts,
            limit=1.0,
            at_most=False,
            unit="1",
            words=Words(
                holds="the kernel's counters agree with every restart",
                fails=f"not shown of {', '.join(sorted(set(wrong['run']))[:3])}{' and more' if wrong['run'].nunique() > 3 else ''}: see the table restore",
                unknown="the kernel counted no reads of the restarts",
            ),
        )
    ]
