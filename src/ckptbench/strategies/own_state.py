"""The file of one rank with the state that only this rank has: running statistics, states of random generators."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from ckptbench.frameworks.contract import Arrays, reading
from ckptbench.runs.events import File


def own_name(rank: int) -> str:
    """Name of the file with the state that only this rank has."""
    return f"rank-{rank}.npz"


def save_own(staging: Path, rank: int, state: Arrays) -> File:
    """Write the file of `rank` into `staging`. It is not synced."""
    path = staging / own_name(rank)
    buffer = io.BytesIO()
    np.savez(buffer, **state)  # type: ignore[arg-type]
    path.write_bytes(buffer.getbuffer())
    return File(name=path.name, kind="own", rank=rank, bytes=path.stat().st_size)


def load_own(folder: Path, rank: int) -> Arrays:
    """What `save_own` wrote for `rank`. Raises CheckpointError where the file cannot be read."""
    path = folder / own_name(rank)
    with reading(path), np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
