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
from ckptbench.checkpointing.copying import NativeCopy, is_native, kept_memory
from ckptbench.checkpointing.pieces import Layout, Piece, header_of
from ckptbench.checkpointing.state_files import (
    bytes_of,
    layout_of,
    own_name,
    own_pieces,
    own_share,
    share_name,
)
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import write_file
from ckptbench.common.small_floats import name_of
from ckptbench.frameworks.contract import Arrays, Tensor
from ckptbench.run.events import File


class StagingBuffer:
    """The own state of `rank`, and its share of the tensors if `world_size` ranks write shares.

    Names, shapes and types are those that the training state has when the buffer is made. The tensors themselves may be replaced
    between two saves, as the load of an optimizer does.
    """

    def __init__(self, training_state: TrainingState, rank: int, world_size: int) -> None:
        self._training_state = training_state
        self._rank = rank
        own = training_state.rank_state()
        of_own = own_pieces(own)
        self._own_layouts = _layouts_of(own)
        self._state = list(training_state.state())
        self._layouts = [layout_of(tensor) for tensor in self._state]
        self._share_pieces = [piece for _, piece in own_share(self._state, rank, world_size)]
        headers = [header_of(pieces) for pieces in (of_own, self._share_pieces)]
        own_bytes = len(headers[0]) + sum(piece.nbytes for piece in of_own)
        share_bytes = len(headers[1]) + sum(piece.nbytes for piece in self._share_pieces)
        self.nbytes = own_bytes + share_bytes
        memory = self._memory = kept_memory(self.nbytes)
        training_state.keep_memory(memory)
        self._own = _FileBuffer(
            File(name=own_name(rank), kind="own", rank=rank, bytes=own_bytes),
            memory[:own_bytes],
            headers[0],
            of_own,
        )
        self._share = _FileBuffer(
            File(name=share_name(rank), kind="state", rank=rank, bytes=share_bytes),
            memory[own_bytes:],
            headers[1],
            self._share_pieces,
        )
        self._values: list[NDArray[np.generic] | None] = []
        self._sources: list[NDArray[np.uint8] | None] = []
        self._now: Mapping[str, Tensor] = {}
        """What the next `capture` copies, by name."""

    @property
    def copies_in_place(self) -> bool:
        """Whether the threads that train copy faster than a thread beside them would: natively, from memory of the host."""
        return is_native() and all(map(_is_at_hand, self._state))

    def _look_up(self, tensors: Mapping[str, Tensor]) -> Sequence[NDArray[np.uint8] | None]:
        """Where the native copy finds each piece. None: no memory has it in the order of the file.

        The same as last time if every tensor is still the same array: this takes a tenth of the time, while training waits.
        """
        values = [tensor.read() if tensor.in_place else None for tensor in tensors.values()]
        if len(values) != len(self._values) or any(map(operator.is_not, values, self._values)):
            self._values = values
            self._sources = [
                tensors[piece.tensor.name].memory(piece.bytes) for piece in self._share_pieces
            ]
        return self._sources

    def begin(self, own: Arrays) -> None:
        """Take the own state in the thread that trains. The share is that of this moment, too. Nothing may be in writing.

        The tensors are looked up here, as a forward pass may put others in their places meanwhile (FSDP2 does). Raises
        CheckpointError if the own state has other shapes, or the training state other tensors, than when the buffer was made.
        """
        if _layouts_of(own) != self._own_layouts:
            raise CheckpointError(
                f"the own state of rank {self._rank} has changed its arrays since the first step: use the strategy native"
            )
        self._own.fill([bytes_of(array) for array in own.values()])
        self._now = self._tensors()
        self._training_state.begin_copies()

    def capture(self) -> None:
        """Copy the share's values, or begin to: see `await_copies`. If `copies_in_place`, call it in the thread that trains."""
        tensors = self._now
        places = self._share.open_places()
        sources = self._look_up(tensors) if self.copies_in_place else [None] * len(places)
        for piece, place, source in zip(self._share_pieces, places, sources, strict=True):
            if source is None:
                tensors[piece.tensor.name].copy_into(place, piece.bytes)
        if self.copies_in_place:
            self._share.fill(sources)

    def await_copies(self) -> None:
        """Return when what `capture` has begun is copied."""
        self._training_state.await_copies()

    def _tensors(self) -> dict[str, Tensor]:
        """The training_state's tensors as they are now, by name."""
        now = list(self._training_state.state())
        # Frameworks return the same objects for tensors that are where they were, and these are compared by identity first.
        if now != self._state:
            self._check(now)
            self._state = now
        return {tensor.name: tensor for tensor in now}

    def _check(self, tensors: Sequence[Tensor]) -> None:
        layouts = [layout_of(tensor) for tensor in tensors]
        if layouts != self._layouts:
            raise CheckpointError(
                f"{_difference(self._layouts, layouts)}, and the memory of rank {self._rank} for its saves has no place for "
                "that: make all parameters and slots when the framework is built, or use the strategy native"
            )

    def write(self, staging: Path, recycled: Path) -> tuple[File, File]:
        """Write both files into `staging`, over those in `recycled` if they are there. Raises CheckpointError."""
        return self._own.write(staging, recycled), self._share.write(staging, recycled)

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
        self._native = NativeCopy(memory, lengths) if is_native() else None
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

    def write(self, staging: Path, recycled: Path) -> File:
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


def _is_at_hand(tensor: Tensor) -> bool:
    """Whether reading the tensor takes no time: it lies in the host's memory, or is one number."""
    return tensor.in_place or (tensor.shape == () and tensor.begin_copy is None)


def _difference(before: Sequence[Layout], now: Sequence[Layout]) -> str:
    """The first tensor in which two states differ."""
    earlier, later = ({each.name: each for each in layouts} for layouts in (before, now))
    for name in (*earlier, *later):
        if name not in earlier:
            return f"{name} was made after the framework was built"
        if name not in later:
            return f"{name} is no longer there"
        old, new = earlier[name], later[name]
        if old.also != new.also:
            return f"{name} has come to share its memory with another tensor, or no longer does"
        if old != new:
            return (
                f"{name} had shape {old.shape} and type {name_of(old.dtype)}, and now has {new.shape} and "
                f"{name_of(new.dtype)}"
            )
    return "the order of the tensors has changed"
