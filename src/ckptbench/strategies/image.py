"""The image of what a rank writes: memory with the bytes of its files, kept for all saves, and the process that writes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpoints.pieces import Layout, Piece, header_of
from ckptbench.common.errors import CheckpointError
from ckptbench.frameworks.contract import Arrays, Tensor
from ckptbench.runs.events import File
from ckptbench.strategies.background import BackgroundWriter, Destination
from ckptbench.strategies.contract import TrainingState
from ckptbench.strategies.state_files import layout_of, own_name, own_pieces, own_share, share_name
from ckptbench.strategies.writer import FAILED, SHORTEST_WRITE


class Image:
    """The own state of `rank`, and its share of the tensors if `world_size` ranks write shares.

    Names, shapes and types are those that the training state has when the image is made. The tensors themselves may be replaced
    between two saves, as the load of an optimizer does.
    """

    def __init__(self, training_state: TrainingState, rank: int, world_size: int) -> None:
        self._training_state = training_state
        self._rank = rank
        self._own = own_pieces(training_state.rank_state())
        self._state = list(training_state.state())
        self._layouts = [layout_of(tensor) for tensor in self._state]
        share = [piece for _, piece in own_share(self._state, rank, world_size)]
        files = [self._own, share]
        headers = [header_of(pieces) for pieces in files]
        sizes = [
            len(header) + _nbytes(pieces) for header, pieces in zip(headers, files, strict=True)
        ]
        self.nbytes, self._own_bytes = sum(sizes), sizes[0]
        self._writer = BackgroundWriter.start(self.nbytes)
        memory = self._writer.memory
        training_state.keep_memory(memory)
        self._own_places = _lay_out(memory[: sizes[0]], headers[0], self._own)
        places = _lay_out(memory[sizes[0] :], headers[1], files[1])
        self._share = list(zip(share, places, strict=True))
        self._filled = sizes[0] + len(headers[1])
        """Bytes that are there before the first tensor is copied."""

    def begin(self, own: Arrays) -> None:
        """Take the own state, and forget the share: a `write` from now on waits for the next `capture`.

        Nothing may be in writing. Raises CheckpointError if the own state has other shapes than when the image was made.
        """
        if own_pieces(own) != self._own:
            raise CheckpointError(
                f"the own state of rank {self._rank} has changed its arrays since the first step: use the strategy native"
            )
        for array, place in zip(own.values(), self._own_places, strict=True):
            place[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._writer.captured(self._filled)

    def capture(self) -> None:
        """Copy the share's values as they are now. A `write` that has begun since `begin` follows the copy.

        Raises CheckpointError if the training state has other tensors than when the image was made.
        """
        try:
            tensors = self._tensors()
            filled = told = self._filled
            for piece, place in self._share:
                tensors[piece.tensor.name].copy_into(place, piece.bytes)
                filled += piece.nbytes
                if filled - told >= SHORTEST_WRITE:
                    self._training_state.await_copies()
                    self._writer.captured(filled)
                    told = filled
            self._training_state.await_copies()
        except BaseException:
            self._writer.captured(FAILED)
            raise
        self._writer.captured(self.nbytes)

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

    def write(self, staging: Path, spare: Path) -> tuple[File, File]:
        """Write both files into `staging`, over those in `spare` if they are there. Raises CheckpointError."""
        own = File(name=own_name(self._rank), kind="own", rank=self._rank, bytes=self._own_bytes)
        share = File(
            name=share_name(self._rank),
            kind="state",
            rank=self._rank,
            bytes=self.nbytes - self._own_bytes,
        )
        edges = (0, self._own_bytes, self.nbytes)
        checksums = self._writer.write(
            [
                Destination(path=staging / file.name, spare=spare / file.name, first=first, end=end)
                for file, (first, end) in zip((own, share), itertools.pairwise(edges), strict=True)
            ]
        )
        return replace(own, checksum=checksums[0]), replace(share, checksum=checksums[1])

    def close(self) -> None:
        """End the process. Nothing may be in writing."""
        self._writer.close()


def _difference(before: Sequence[Layout], now: Sequence[Layout]) -> str:
    """The first tensor in which two states differ."""
    then, there = ({each.name: each for each in layouts} for layouts in (before, now))
    for name in (*then, *there):
        if name not in then:
            return f"{name} was made after the framework was built"
        if name not in there:
            return f"{name} is no longer there"
        old, new = then[name], there[name]
        if old != new:
            return f"{name} had shape {old.shape} and type {old.dtype}, and now has {new.shape} and {new.dtype}"
    return "the order of the tensors has changed"


def _nbytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.nbytes for piece in pieces)


def _lay_out(
    memory: NDArray[np.uint8], header: bytes, pieces: Sequence[Piece]
) -> list[NDArray[np.uint8]]:
    """Put the header of a file to its beginning. Returns where the values of each piece belong."""
    memory[: len(header)] = np.frombuffer(header, np.uint8)
    edges = np.cumsum([len(header), *(piece.nbytes for piece in pieces)])
    return [memory[first:end] for first, end in itertools.pairwise(edges)]
