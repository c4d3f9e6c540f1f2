"""Files that hold a shard of the state, in the layout of safetensors: every library that reads it opens them.

The layout is 8 bytes with the length of a header, the header as JSON, and the values without gaps
(https://huggingface.co/docs/safetensors). A tensor that lies whole in one file has its own name there. Of a tensor that
is cut, each file has a one-dimensional part, named `<tensor>[<first element>:<end>]`, and the entry `<tensor>` of its
`__metadata__` says the whole shape. A tensor with several names has one in the file; `__metadata__` has the others, each with
that one, as in files of safetensors' own `save_model`.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpointing.uploads import Upload
from ckptbench.common.errors import CheckpointError
from ckptbench.common.small_floats import SMALL_FLOATS, name_of

ALIGNMENT = 4096
"""The length of a file is a multiple of it, so that all of it can be written past the page cache."""
LONGEST_HEADER = 100_000_000
"""Bytes. The limit of safetensors itself."""
BUFFERS = 1024
"""How many buffers one call may write. Linux's limit."""
PENDING_BYTES = 1 << 21
"""So many bytes are written at once, as blocks that are copies take memory until then."""

_DTYPES = {
    **{
        code: np.dtype(name)
        for code, name in (
            ("BOOL", "bool"), ("U8", "uint8"), ("I8", "int8"), ("U16", "uint16"), ("I16", "int16"), ("U32", "uint32"),
            ("I32", "int32"), ("U64", "uint64"), ("I64", "int64"), ("F16", "float16"), ("F32", "float32"), ("F64", "float64"),
        )
    },
    "BF16": SMALL_FLOATS["bfloat16"],
    "F8_E4M3": SMALL_FLOATS["float8_e4m3fn"],
    "F8_E5M2": SMALL_FLOATS["float8_e5m2"],
}  # fmt: skip
"""By the names that safetensors has for them."""
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_PART = re.compile(r"(.+)\[(\d+):(\d+)\]")
"""The name of a part of a tensor in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A tensor without its values."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    aliases: tuple[str, ...] = ()
    """Its other names."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Elements `start` to `stop` of a tensor in C order."""

    tensor: Layout
    start: int
    stop: int

    @property
    def is_whole(self) -> bool:
        return (self.start, self.stop) == (0, self.tensor.size)

    @property
    def nbytes(self) -> int:
        return (self.stop - self.start) * self.tensor.dtype.itemsize

    @property
    def bytes(self) -> slice:
        """Where it lies among the bytes of the tensor."""
        itemsize = self.tensor.dtype.itemsize
        return slice(self.start * itemsize, self.stop * itemsize)

    @property
    def key(self) -> str:
        """Its name in the file."""
        return (
            self.tensor.name if self.is_whole else f"{self.tensor.name}[{self.start}:{self.stop}]"
        )

    def within(self, start: int, stop: int) -> Piece:
        """Those of its elements that are among elements `start` to `stop` of the tensor; perhaps none."""
        first = min(max(self.start, start), self.stop)
        return replace(self, start=first, stop=max(first, min(self.stop, stop)))


def shard_of(tensors: Sequence[Layout], rank: int, world_size: int) -> list[Piece]:
    """The pieces that `rank` writes, so that all ranks write the same number of bytes and every byte is written once.

    The bytes of all tensors, one after the other, are cut into `world_size` equal parts; a cut inside an element moves
    to its beginning. Shards differ by less than two elements.
    """
    total = sum(tensor.nbytes for tensor in tensors)
    first, last = (total * edge // world_size for edge in (rank, rank + 1))
    pieces = []
    before = 0
    for tensor in tensors:
        itemsize = tensor.dtype.itemsize
        start, stop = (
            min(max(edge - before, 0), tensor.nbytes) // itemsize for edge in (first, last)
        )
        if stop > start:
            pieces.append(Piece(tensor=tensor, start=start, stop=stop))
        before += tensor.nbytes
    return pieces


def header_of(pieces: Sequence[Piece]) -> bytes:
    """The beginning of a file whose values are those of `pieces`, in their order.

    Spaces at its end make the length of the whole file a multiple of ALIGNMENT. Raises CheckpointError for a tensor that could
    not be read again as it is.
    """
    for piece in pieces:
        _check_readable(piece.tensor)
    entries: dict[str, Any] = {}
    cut = [piece.tensor for piece in pieces if not piece.is_whole]
    metadata = {
        **{tensor.name: json.dumps(list(tensor.shape)) for tensor in cut},
        **{name: piece.tensor.name for piece in pieces for name in piece.tensor.aliases},
    }
    if metadata:
        entries["__metadata__"] = metadata
    offset = 0
    for piece in pieces:
        shape = piece.tensor.shape if piece.is_whole else (piece.stop - piece.start,)
        entries[piece.key] = {
            "dtype": _CODES[piece.tensor.dtype],
            "shape": list(shape),
            "data_offsets": [offset, offset + piece.nbytes],
        }
        offset += piece.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text) + offset) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _check_readable(tensor: Layout) -> None:
    if tensor.dtype not in _CODES:  # also where the bytes of its numbers are in another order
        raise CheckpointError(
            f"{tensor.name} has the type {name_of(tensor.dtype)}, which files of shards do not have: use the strategy native"
        )
    if tensor.name == "__metadata__" or _PART.fullmatch(tensor.name):
        raise CheckpointError(
            f"{tensor.name} would be taken for something else than a tensor's name in a file of shards: rename it, or use the "
            "strategy native"
        )


def send_pieces(
    upload: Upload, pieces: Sequence[Piece], blocks: Iterable[NDArray[np.uint8]]
) -> None:
    """Write to an object what `write_pieces` writes to a file."""
    upload.write(header_of(pieces))
    for block in blocks:
        upload.write(block.data)


def write_pieces(path: Path, pieces: Sequence[Piece], blocks: Iterable[NDArray[np.uint8]]) -> None:
    """Write a new file with the bytes of all pieces, in blocks that follow one another.

    It copies nothing, holds few blocks at a time, and does not sync the file.
    """
    with path.open("xb", buffering=0) as file:
        pending: list[memoryview] = [memoryview(header_of(pieces))]
        nbytes = 0
        for block in blocks:
            pending.append(block.data)
            nbytes += block.nbytes
            if len(pending) == BUFFERS or nbytes >= PENDING_BYTES:
                _write(file.fileno(), pending)
                pending, nbytes = [], 0
        _write(file.fileno(), pending)


def _write(descriptor: int, buffers: list[memoryview]) -> None:
    left = [buffer for buffer in buffers if buffer.nbytes]
    while left:
        written = os.writev(descriptor, left)
        while left and written >= left[0].nbytes:
            written -= left.pop(0).nbytes
        if written:
            left[0] = left[0][written:]


def read_pieces(
    path: Path,
    into: Callable[[Piece], NDArray[np.uint8] | None] = lambda piece: None,
    part: Callable[[Piece], Piece] = lambda piece: piece,
) -> Iterator[tuple[Piece, NDArray[np.uint8]]]:
    """Every piece of a file, or its `part`, with its bytes, shape (nbytes,). Raises CheckpointError for another layout.

    A part is a piece of the same tensor that lies within the piece; no other bytes are read, and an empty one is left out.
    They are read into the memory that `into` returns for the piece. None: into memory that is overwritten when the next
    piece is asked for, as fresh memory for each would cost more than reading it.
    """
    with path.open("rb", buffering=0) as file:
        pieces, data = _read_header(path, file)
        begins = itertools.accumulate((piece.nbytes for piece in pieces), initial=data)
        placed = [
            (chosen, begin + chosen.bytes.start - piece.bytes.start)
            for piece, begin in zip(pieces, begins, strict=False)
            if (chosen := part(piece)) == piece or chosen.nbytes
        ]
        kept = np.empty(max((piece.nbytes for piece, _ in placed), default=0), np.uint8)
        for piece, begin in placed:
            memory = into(piece)
            values = kept[: piece.nbytes] if memory is None else memory
            file.seek(begin)
            _fill(path, file, values.data)
            yield piece, values


def pieces_in(path: Path) -> list[Piece]:
    """Every piece of a file, without its bytes. Raises CheckpointError for another layout."""
    with path.open("rb", buffering=0) as file:
        return _read_header(path, file)[0]


def read_ahead(paths: Iterable[Path]) -> None:
    """Let the kernel fetch these files into memory, while this process does other things. Raises OSError."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def _fill(path: Path, file: BinaryIO, buffer: memoryview) -> None:
    while buffer.nbytes:
        count = file.readinto(buffer)  # type: ignore[attr-defined]
        if not count:
            raise _odd(path, "it ends too early")
        buffer = buffer[count:]


def _read_header(path: Path, file: BinaryIO) -> tuple[list[Piece], int]:
    """The pieces in the order of their values, and where these begin."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= LONGEST_HEADER:
        raise _odd(path, f"its header would have {length} bytes")
    try:
        entries = json.loads(file.read(length))
        metadata = entries.pop("__metadata__", {})
        aliases = _other_names(metadata, entries)
        found = [
            (entry["data_offsets"], _piece(key, entry, metadata, aliases))
            for key, entry in entries.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _odd(path, f"its header cannot be read ({type(error).__name__}: {error})") from error
    offset = 0
    for offsets, piece in found:
        if offsets != [offset, offset + piece.nbytes]:
            raise _odd(path, f"{piece.key} lies at {offsets}, not at {offset}")
        offset += piece.nbytes
    end = 8 + length + offset
    if (size := os.fstat(file.fileno()).st_size) != end:
        raise _odd(path, f"it has {size} bytes, its header speaks of {end}")
    return [piece for _, piece in found], 8 + length


def _other_names(metadata: dict[str, str], keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Those of each tensor that has some. What else `__metadata__` has are the shapes of tensors that are cut."""
    cut = {part[1] for key in keys if (part := _PART.fullmatch(key))}
    found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for other, name in metadata.items():
        if other not in cut:
            found[name] += (other,)
    return found


def _piece(
    key: str,
    entry: dict[str, Any],
    metadata: Mapping[str, str],
    aliases: Mapping[str, tuple[str, ...]],
) -> Piece:
    dtype = _DTYPES[entry["dtype"]]
    part = _PART.fullmatch(key)
    if part is None:
        tensor = Layout(
            name=key, shape=tuple(entry["shape"]), dtype=dtype, aliases=aliases.get(key, ())
        )
        return Piece(tensor=tensor, start=0, stop=tensor.size)
    name, start, stop = part[1], int(part[2]), int(part[3])
    shape = tuple(json.loads(metadata[name]))
    tensor = Layout(name=name, shape=shape, dtype=dtype, aliases=aliases.get(name, ()))
    if not 0 <= start < stop <= tensor.size or entry["shape"] != [stop - start]:
        raise ValueError(f"{key} is no part of a tensor of shape {tensor.shape}")
    return Piece(tensor=tensor, start=start, stop=stop)


def _odd(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is no shard of a checkpoint: {what}; resume from another version, or remove the run folder to start over"
    )
