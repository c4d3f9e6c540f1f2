"""The files of a version in the layout of safetensors: each rank's own state, and its shard of model and optimizer.

The own state is what only this rank has: running statistics, states of random generators. An archive of as many arrays
would take Python ten times as long to write, and other threads of the process wait meanwhile.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpointing.contract import TrainingState, written_file
from ckptbench.checkpointing.pieces import (
    Layout,
    Piece,
    pieces_in,
    read_ahead,
    read_pieces,
    send_pieces,
    shard_of,
    write_pieces,
)
from ckptbench.checkpointing.uploads import uploading
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.common.objects import ObjectPath, Place
from ckptbench.common.remedies import blame
from ckptbench.common.small_floats import name_of
from ckptbench.frameworks.contract import Arrays, TensorHandle, reading
from ckptbench.run.events import File

FORMAT = "safetensors"
"""What the versions of these files have as their format."""


def own_name(rank: int) -> str:
    """Name of the file with the state that only this rank has."""
    return f"rank-{rank}.safetensors"


def save_own(staging: Place, rank: int, state: Arrays) -> File:
    """Write the file of `rank` into `staging`. It is not synced."""
    file = File(name=own_name(rank), kind="own", rank=rank, bytes=0)
    return _save_pieces(staging, file, own_pieces(state), map(bytes_of, state.values()))


def _save_pieces(
    staging: Place, file: File, pieces: Sequence[Piece], blocks: Iterable[NDArray[np.uint8]]
) -> File:
    """The file with its size."""
    if isinstance(staging, ObjectPath):
        with uploading(staging / file.name) as upload:
            send_pieces(upload, pieces, blocks)
        return upload.file(file.kind, file.rank)
    write_pieces(staging / file.name, pieces, blocks)
    return written_file(staging, file.name, file.kind, file.rank)


def own_pieces(state: Arrays) -> list[Piece]:
    """The arrays as they lie in the file."""
    layouts = [
        Layout(name=name, shape=array.shape, dtype=array.dtype) for name, array in state.items()
    ]
    return [Piece(tensor=layout, start=0, stop=layout.size) for layout in layouts]


def bytes_of(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    """In C order. It copies only an array that is in another order."""
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
        for name, array in training_state.local_state().items()
    }


def restore_own(version: Version, folder: Path, training_state: TrainingState, rank: int) -> None:
    """Restore `own_of`. Raises CheckpointError where a file cannot be read, or lacks a part of the state."""
    own = own_of(version, folder, training_state, rank)
    with reading(folder / own_name(rank if rank < version.world_size else 0)):
        training_state.load_local_state(own)


def shard_name(rank: int) -> str:
    """Name of the file with the shard of the state that `rank` has written."""
    return f"state-{rank}.safetensors"


def save_shard(staging: Place, handles: Sequence[TensorHandle], rank: int, world_size: int) -> File:
    """Write the shard of the state that `rank` writes of all tensors. It is not synced."""
    shard = own_shard(handles, rank, world_size)
    file = File(name=shard_name(rank), kind="state", rank=rank, bytes=0)
    blocks = (block for handle, piece in shard for block in handle.blocks(piece.bytes))
    return _save_pieces(staging, file, [piece for _, piece in shard], blocks)


def layout_of(handle: TensorHandle) -> Layout:
    return Layout(name=handle.name, shape=handle.shape, dtype=handle.dtype, aliases=handle.aliases)


def own_shard(
    handles: Sequence[TensorHandle], rank: int, world_size: int
) -> list[tuple[TensorHandle, Piece]]:
    """The pieces that `rank` writes, with the handles of their tensors. Raises CheckpointError if two have one name.

    Of a tensor of which ranks hold shards it is the shard of this rank, divided among those that hold the same one; the others
    are divided as `shard_of` says.
    """
    by_name = {handle.name: handle for handle in handles}
    names = [name for handle in handles for name in (handle.name, *handle.aliases)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CheckpointError(
            f"two tensors of the state are named {twice}: a file would hold only one of them"
        )
    by_all = [layout_of(handle) for handle in handles if handle.shard is None]
    shards = [_own_part(handle) for handle in handles if handle.shard is not None]
    pieces = [
        *(piece for piece in shards if piece.stop > piece.start),
        *shard_of(by_all, rank, world_size),
    ]
    return [(by_name[piece.tensor.name], piece) for piece in pieces]


def _own_part(handle: TensorHandle) -> Piece:
    """What this rank writes of its shard: each rank that holds the same one writes an equal part of it."""
    (start, stop), (number, holders) = handle.held_range, handle.replica
    first, last = (start + (stop - start) * edge // holders for edge in (number, number + 1))
    return Piece(tensor=layout_of(handle), start=first, stop=last)


def load_shards(version: Version, folder: Path, training_state: TrainingState, rank: int) -> None:
    """Load the state from the shards of however many ranks wrote the version; of each tensor only what this rank holds.

    Each rank's own state follows `own_of`. Raises CheckpointError if the shards are not the whole state of this
    training_state.
    """
    handles = {handle.name: handle for handle in training_state.handles()}
    shards = [folder / file.name for file in version.files.values() if file.kind == "state"]
    try:
        if not training_state.is_sharded:
            read_ahead(shards)
        _check(handles, shards)
        _assemble(handles, shards)
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be read: {blame(error, folder, 'resume from another version', reading=True)}"
        ) from error
    except ValueError as error:
        raise CheckpointError(
            f"{folder} does not fit this network and optimizer: {error}; resume from another version, or remove "
            "the run folder to start over"
        ) from error
    restore_own(version, folder, training_state, rank)


def _check(handles: Mapping[str, TensorHandle], shards: Iterable[Path]) -> None:
    """Check that the files together hold every element of every tensor, and none of them twice.

    Counting bytes would not do: an element that is there twice would stand for another that is not. Raises ValueError.
    """
    held: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for path in shards:
        for piece in pieces_in(path):
            _check_fit(handles, path, piece)
            held[piece.tensor.name].append((piece.start, piece.stop, path.name))
    for name, handle in handles.items():
        reached = 0
        for start, stop, file in sorted(held[name]):
            if start < reached:
                raise ValueError(
                    f"{name} is there more than once: {file} has its elements {start} to {stop}, other shards "
                    f"those up to {reached}"
                )
            if start > reached:
                raise ValueError(_lacking(name, reached, start))
            reached = stop
        if reached < (size := math.prod(handle.shape)):
            raise ValueError(_lacking(name, reached, size))


def _lacking(name: str, start: int, stop: int) -> str:
    return f"{name} is not there as a whole: no shard has its elements {start} to {stop}"


def _check_fit(handles: Mapping[str, TensorHandle], path: Path, piece: Piece) -> None:
    """Check that the piece of a file is one of a tensor of this run. Raises ValueError."""
    name = piece.tensor.name
    if name not in handles:
        raise ValueError(f"{path.name} has {name}, which this run has not")
    handle = handles[name]
    if (piece.tensor.shape, piece.tensor.dtype) != (handle.shape, handle.dtype):
        raise ValueError(
            f"{name} has shape {piece.tensor.shape} and type {name_of(piece.tensor.dtype)} in {path.name}, here "
            f"{handle.shape} and {name_of(handle.dtype)}"
        )
    if piece.tensor.aliases != handle.aliases:
        raise ValueError(
            f"{name} has {_and_names(piece.tensor.aliases)} in {path.name}, here {_and_names(handle.aliases)}"
        )


def _and_names(aliases: Sequence[str]) -> str:
    return f"the other names {', '.join(aliases)}" if aliases else "no other name"


def _assemble(handles: Mapping[str, TensorHandle], shards: Iterable[Path]) -> None:
    """Read shards that `_check` has passed into the tensors."""
    cut: dict[str, NDArray[np.uint8]] = {}
    for path in shards:
        for piece, values in read_pieces(
            path, partial(_memory_of, handles), partial(_held_of, handles)
        ):
            handle = handles[piece.tensor.name]
            if handle.memory(piece.bytes) is not None:
                continue  # it was read there
            held = Piece(tensor=piece.tensor, start=handle.held_range[0], stop=handle.held_range[1])
            if handle.in_place:
                handle.put(piece.bytes, values)
            elif piece == held:
                _write(handle, values)
            else:
                own = cut.setdefault(handle.name, np.empty(held.nbytes, np.uint8))
                before = held.bytes.start
                own[piece.bytes.start - before : piece.bytes.stop - before] = values
    for name, own in cut.items():
        _write(handles[name], own)


def _write(handle: TensorHandle, values: NDArray[np.uint8]) -> None:
    shape = handle.shape if handle.shard is None else handle.read().shape
    handle.write(values.view(handle.dtype).reshape(shape))


def _held_of(handles: Mapping[str, TensorHandle], piece: Piece) -> Piece:
    return piece.within(*handles[piece.tensor.name].held_range)


def _memory_of(handles: Mapping[str, TensorHandle], piece: Piece) -> NDArray[np.uint8] | None:
    """Where the piece belongs, in the framework's own memory. None: it cannot be read into there."""
    return handles[piece.tensor.name].memory(piece.bytes)
