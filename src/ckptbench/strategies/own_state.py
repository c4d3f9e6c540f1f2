"""The file of one rank with the state that only this rank has: running statistics, states of random generators.

It has the layout of safetensors: an archive of as many arrays takes Python ten times as long to write, and other threads
of the process wait meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpoints.pieces import Layout, Piece, read_pieces, write_pieces
from ckptbench.checkpoints.version import Version
from ckptbench.frameworks.contract import Arrays, reading
from ckptbench.runs.events import File
from ckptbench.strategies.contract import TrainingState


def own_name(rank: int) -> str:
    """Name of the file with the state that only this rank has."""
    return f"rank-{rank}.safetensors"


def save_own(staging: Path, rank: int, state: Arrays) -> File:
    """Write the file of `rank` into `staging`. It is not synced."""
    path = staging / own_name(rank)
    write_pieces(path, own_pieces(state), map(_bytes, state.values()))
    return File(name=path.name, kind="own", rank=rank, bytes=path.stat().st_size)


def own_pieces(state: Arrays) -> list[Piece]:
    """The arrays as they lie in the file."""
    layouts = [
        Layout(name=name, shape=array.shape, dtype=array.dtype) for name, array in state.items()
    ]
    return [Piece(tensor=layout, start=0, stop=layout.size) for layout in layouts]


def _bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def load_own(folder: Path, rank: int) -> Arrays:
    """What `save_own` wrote for `rank`. Raises CheckpointError where the file cannot be read."""
    path = folder / own_name(rank)
    with reading(path):
        return {
            piece.tensor.name: values.view(piece.tensor.dtype).reshape(piece.tensor.shape).copy()
            for piece, values in read_pieces(path)
        }


def own_of(version: Version, folder: Path, training_state: TrainingState, rank: int) -> Arrays:
    """The own state with which `rank` goes on from a version of however many ranks.

    A rank with a number that the version does not have begins with the running statistics of rank 0, and draws on from
    its own seed. Raises CheckpointError where a file cannot be read.
    """
    if rank < version.world_size:
        return load_own(folder, rank)
    first = load_own(folder, 0)
    return {
        name: first[name] if name.startswith("buffer/") else array
        for name, array in training_state.rank_state().items()
    }


def restore_own(version: Version, folder: Path, training_state: TrainingState, rank: int) -> None:
    """Restore `own_of`. Raises CheckpointError where a file cannot be read, or lacks a part of the state."""
    own = own_of(version, folder, training_state, rank)
    with reading(folder / own_name(rank if rank < version.world_size else 0)):
        training_state.load_rank_state(own)
