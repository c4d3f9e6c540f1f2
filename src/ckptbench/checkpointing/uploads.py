"""Files of a version as objects: written in a stream with their checksum, and fetched to a folder of the node with a check of every byte."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from ckptbench.checkpointing.checksum import Checksum
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import write_all
from ckptbench.common.objects import ObjectPath
from ckptbench.common.remedies import blame
from ckptbench.run.events import File, FileKind

AT_ONCE = 8
"""Objects that are fetched at the same time."""
BLOCK_BYTES = 16 << 20
"""What is given to the library at once: it copies it."""


class Upload(io.RawIOBase):
    """A stream that libraries write a file to. It counts and checks the bytes on their way."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        super().__init__()
        self._stream = stream
        self._name = name
        self._checksum = Checksum()
        self._bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._bytes

    def write(self, content: Any) -> int:
        """Write all of the bytes."""
        view = memoryview(content).cast("B")
        for start in range(0, view.nbytes, BLOCK_BYTES):
            block = view[start : start + BLOCK_BYTES]
            self._stream.write(block)
            self._checksum.update(block)
        self._bytes += view.nbytes
        return view.nbytes

    def file(self, kind: FileKind, rank: int | None) -> File:
        """The record of the whole object, with its checksum."""
        return File(
            name=self._name,
            kind=kind,
            rank=rank,
            bytes=self._bytes,
            checksum=self._checksum.hexdigest(),
        )


@contextmanager
def uploading(path: ObjectPath) -> Iterator[Upload]:
    """Write an object. It is durable after the block; after an error in it there is none."""
    with path.open_new() as stream:
        yield Upload(stream, path.name)


def object_checksum(path: ObjectPath, size: int) -> str:
    """The checksum of an object of this size, which is read for it. Raises CheckpointError."""
    checksum = Checksum()
    for block in path.blocks(size):
        checksum.update(memoryview(block))
    return checksum.hexdigest()


@contextmanager
def fetched(version: ObjectPath, files: Mapping[File, str], base: Path) -> Iterator[Path]:
    """A folder of the node with these files of a version, each with its checksum, for as long as the block takes.

    Raises CheckpointError where an object is not what was committed, or `base` cannot take it.
    """
    with ExitStack() as stack:
        try:
            base.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(TemporaryDirectory(prefix="ckptbench-fetched-", dir=base))
            with ThreadPoolExecutor(AT_ONCE) as pool:
                fetch = partial(_fetch, version, Path(folder))
                list(pool.map(fetch, files.keys(), files.values()))  # raises the first error
        except OSError as error:
            remedy = "set checkpoints.node_folder to another folder"
            raise CheckpointError(
                f"{version} cannot be fetched to {base}: {blame(error, base, remedy)}"
            ) from error
        yield Path(folder)


def _fetch(version: ObjectPath, folder: Path, file: File, checksum: str) -> None:
    target, found = folder / file.name, Checksum()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb", buffering=0) as writer:
        for block in (version / file.name).blocks(file.bytes):
            found.update(memoryview(block))
            write_all(writer, memoryview(block))
    if found.hexdigest() != checksum:
        raise CheckpointError(f"checkpoint file {version / file.name} was changed after its commit")
