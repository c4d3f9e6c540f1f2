"""The staging buffer of a rank: memory with the bytes of its files, kept for all saves, from which they are written."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpointing.checksum import Checksum
from ckptbench.checkpointing.contract import TrainingState
from ckptbench.checkpointing.copying import NativeCopy, has_c_copy, kept_memory
from ckptbench.checkpointing.pieces import Layout, Piece, header_of
from ckptbench.checkpointing.state_files import (
    bytes_of,
    layout_of,
    own_name,
    own_pieces,
    own_shard,
    shard_name,
)
from ckptbench.checkpointing.uploads import uploading
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import write_file
from ckptbench.common.objects import ObjectPath, Place
from ckptbench.common.small_floats import name_of
from ckptbench.frameworks.contract import Arrays, TensorHandle
from ckptbench.run.events import File


class StagingBuffer:
    """The own state of `rank`, and its shard of the tensors if `world_size` ranks write shards.

    Names, shapes and types are those that the training state has when the buffer is made. The tensors themselves may be replaced
    between two saves, as the load of an optimizer does.
    """

    def __init__(self, training_state: TrainingState, rank: int, world_size: int) -> None:
        self._training_state = training_state
        self._rank = rank
        own = training_state.local_state()
        of_own = own_pieces(own)
        self._own_layouts = _layouts_of(own)
        self._handles = list(training_state.handles())
        self._layouts = [layout_of(handle) for handle in self._handles]
        self._shard_pieces = [piece for _, piece in own_shard(self._handles, rank, world_size)]
        headers = [header_of(pieces) for pieces in (of_own, self._shard_pieces)]
        own_bytes = len(headers[0]) + sum(piece.nbytes for piece in of_own)
        shard_bytes = len(headers[1]) + sum(piece.nbytes for piece in self._shard_pieces)
        self.nbytes = own_bytes + shard_bytes
        memory = self._memory = kept_memory(self.nbytes)
        training_state.keep_memory(memory)
        self._own = _FileBuffer(
            File(name=own_name(rank), kind="own", rank=rank, bytes=own_bytes),
            memory[:own_bytes],
            headers[0],
            of_own,
        )
        self._shard = _FileBuffer(
            File(name=shard_name(rank), kind="state", rank=rank, bytes=shard_bytes),
            memory[own_bytes:],
            headers[1],
            self._shard_pieces,
        )
        self._values: list[NDArray[np.generic] | None] = []
        self._sources: list[NDArray[np.uint8] | None] = []
        self._now: Mapping[str, TensorHandle] = {}
        """What the next `capture` copies, by name."""

    @property
    def copies_in_place(self) -> bool:
        """Whether the threads that train copy faster than a thread beside them would: natively, from memory of the host."""
        return has_c_copy() and all(map(_is_at_hand, self._handles))

    def _look_up(self, handles: Mapping[str, TensorHandle]) -> Sequence[NDArray[np.uint8] | None]:
        """Where the native copy finds each piece. None: no memory has it in the order of the file.

        The same as last time if every tensor is still the same array: this takes a tenth of the time, while training waits.
        """
        values = [handle.read() if handle.in_place else None for handle in handles.values()]
        if len(values) != len(self._values) or any(map(operator.is_not, values, self._values)):
            self._values = values
            self._sources = [
                handles[piece.tensor.name].memory(piece.bytes) for piece in self._shard_pieces
            ]
        return self._sources

    def begin(self, own: Arrays) -> None:
        """Take the own state in the thread that trains. The shard is that of this moment, too. Nothing may be in writing.

        The tensors are looked up here, as a forward pass may put others in their places meanwhile (FSDP2 does). Raises
        CheckpointError if the own state has other shapes, or the training state other tensors, than when the buffer was made.
        """
        if _layouts_of(own) != self._own_layouts:
            raise CheckpointError(
                f"the own state of rank {self._rank} has changed its arrays since the first step: use the strategy native"
            )
        self._own.fill([bytes_of(array) for array in own.values()])
        self._now = self._current_handles()
        self._training_state.begin_copies()

    def capture(self) -> None:
        """Copy the shard's values, or begin to: see `await_copies`. If `copies_in_place`, call it in the thread that trains."""
        handles = self._now
        places = self._shard.open_places()
        sources = self._look_up(handles) if self.copies_in_place else [None] * len(places)
        for piece, place, source in zip(self._shard_pieces, places, sources, strict=True):
            if source is None:
                handles[piece.tensor.name].copy_into(place, piece.bytes)
        if self.copies_in_place:
            self._shard.fill(sources)

    def await_copies(self) -> None:
        """Return when what `capture` has begun is copied."""
        self._training_state.await_copies()

    def _current_handles(self) -> dict[str, TensorHandle]:
        """The handles of the training state's tensors as they are now, by name."""
        now = list(self._training_state.handles())
        # Frameworks return the same objects for tensors that are where they were, and these are compared by identity first.
        if now != self._handles:
            self._check(now)
            self._handles = now
        return {handle.name: handle for handle in now}

    def _check(self, handles: Sequence[TensorHandle]) -> None:
        layouts = [layout_of(handle) for handle in handles]
        if layouts != self._layouts:
            raise CheckpointError(
                f"{_difference(self._layouts, layouts)}, and the memory of rank {self._rank} for its saves has no place for "
                "that: make all parameters and slots when the framework is built, or use the strategy native"
            )

    def write(self, staging: Place, recycled: Place) -> tuple[File, File]:
        """Write both files into `staging`, over those in `recycled` if they are there. Raises CheckpointError."""
        return self._own.write(staging, recycled), self._shard.write(staging, recycled)

    def close(self) -> None:
        """Give back what was made of the memory for copies from a device. Nothing may be copied any more."""
        self._training_state.release_memory(self._memory)


class _FileBuffer:
    """The bytes of one file."""

    def __init__(
        self, file: File, memory: NDArray[np.uint8], header: bytes, pieces: Sequence[Piece]
    ) -> None:
        self._file = file
        self._memory = memory
        self._header = np.frombuffer(header, np.uint8)
        lengths = [len(header), *(piece.nbytes for piece in pieces)]
        edges = itertools.pairwise([0, *itertools.accumulate(lengths)])
        start, *self._places = [memory[first:end] for first, end in edges]
        start[:] = self._header
        self._native = NativeCopy(memory, lengths) if has_c_copy() else None
        self._checksum: str | None = None
        """None: it is not known yet."""

    def open_places(self) -> Sequence[NDArray[np.uint8]]:
        """Where the values of each piece belong, to be put there. What was there before is no longer the file's."""
        self._checksum = None
        return self._places

    def fill(self, values: Sequence[NDArray[np.uint8] | None]) -> None:
        """Copy the values of all pieces to their places. None: they are there already."""
        if self._native is not None:
            self._checksum = self._native.copy([self._header, *values])
            return
        for place, value in zip(self._places, values, strict=True):
            if value is not None:
                np.copyto(place, value)

    def write(self, staging: Place, recycled: Place) -> File:
        if isinstance(staging, ObjectPath):
            with uploading(staging / self._file.name) as upload:
                upload.write(self._memory.data)
            return upload.file(self._file.kind, self._file.rank)
        assert isinstance(recycled, Path)
        if self._checksum is not None:
            self._put(staging, recycled)
            return replace(self._file, checksum=self._checksum)
        with ThreadPoolExecutor(1) as hashing:
            checksum = hashing.submit(self._hexdigest)
            self._put(staging, recycled)
        return replace(self._file, checksum=checksum.result())

    def _put(self, staging: Path, recycled: Path) -> None:
        path, name = staging / self._file.name, self._file.name
        try:
            write_file(str(path), str(recycled / name), self._memory.data)
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be written in the background: {type(error).__name__}: {error}"
            ) from error

    def _hexdigest(self) -> str:
        checksum = Checksum()
        checksum.update(self._memory.data)
        return checksum.hexdigest()


def _layouts_of(arrays: Arrays) -> list[tuple[str, tuple[int, ...], np.dtype[np.generic]]]:
    return [(name, array.shape, array.dtype) for name, array in arrays.items()]


def _is_at_hand(handle: TensorHandle) -> bool:
    """Whether reading the tensor takes no time: it lies in the host's memory, or is one number."""
    return handle.in_place or (handle.shape == () and handle.begin_copy is None)


def _difference(before: Sequence[Layout], now: Sequence[Layout]) -> str:
    """The first tensor in which two states differ."""
    earlier, later = ({each.name: each for each in layouts} for layouts in (before, now))
    for name in (*earlier, *later):
        if name not in earlier:
            return f"{name} was made after the framework was built"
        if name not in later:
            return f"{name} is no longer there"
        old, new = earlier[name], later[name]
        if old.aliases != new.aliases:
            return f"{name} has come to share its memory with another tensor, or no longer does"
        if old != new:
            return (
                f"{name} had shape {old.shape} and type {name_of(old.dtype)}, and now has {new.shape} and "
                f"{name_of(new.dtype)}"
            )
    return "the order of the tensors has changed"
