"""The files of torch.distributed.checkpoint (DCP): their names, their loading without trust, and their errors.

DCP writes one file of tensors a rank, and an index, `.metadata`, which is a pickle. Its own reader unpickles whatever
the index holds. The reader here makes only the types that an index consists of, refuses every value that is no tensor,
because DCP would unpickle that too, and reads no file outside the version.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FileSystem as FsspecFileSystem
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.futures import Future

from ckptbench.checkpointing.contract import TrainingState, written_file
from ckptbench.checkpointing.strategies.pytorch.state import load_rest, state_of, statistics_rank
from ckptbench.checkpointing.uploads import Upload, uploading
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.common.objects import ObjectPath, Place, file_system
from ckptbench.frameworks.contract import reading
from ckptbench.run.events import File

INDEX = ".metadata"
_SUFFIX = ".distcp"
_ALLOWED = {
    "pathlib": {"Path", "PosixPath"},
    "torch": {"Size"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "_MEM_FORMAT_ENCODING",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
    },
    "torch.serialization": {"_get_layout"},
}
"""The names that an index consists of, by module, beside the types of tensors' elements."""


class ObjectWriter(FsspecWriter):
    """DCP's own writer to an object store, over streams that leave no object after an error.

    With `sync_files` it would call `os.sync` after each object, which waits for all disks of the machine.
    """

    def __init__(self, folder: ObjectPath) -> None:
        super().__init__(folder.url, sync_files=False)
        self.fs: _Streams = _Streams(file_system(folder.scheme))


class _Streams(FsspecFileSystem):
    """Objects by their URLs."""

    def __init__(self, system: Any) -> None:
        super().__init__()
        self.fs = system
        self.written: dict[str, Upload] = {}
        """By name."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        target = ObjectPath(os.fspath(path))
        with uploading(target) as upload:
            yield upload
        self.written[target.name] = upload

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """No object needs a folder. s3fs would make a bucket that is not there."""

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """The store copies the object, and removes the old one."""
        super().rename(path, new_path)
        old, new = (ObjectPath(os.fspath(each)).name for each in (path, new_path))
        self.written[new] = self.written.pop(old)


def writer_to(staging: Place) -> ObjectWriter | None:
    """What writes there. None: for a folder DCP chooses its own."""
    return ObjectWriter(staging) if isinstance(staging, ObjectPath) else None


def written_files(staging: Place, rank: int, writer: ObjectWriter | None) -> list[File]:
    """The files that DCP has written on this rank, as they are named to the store. It writes the index on rank 0."""
    if isinstance(staging, ObjectPath):
        assert writer is not None
        return _written_objects(staging, rank, writer.fs.written)
    names = sorted(path.name for path in staging.glob(f"__{rank}_*{_SUFFIX}"))
    files = [written_file(staging, name, "state", rank) for name in names]
    return [*files, written_file(staging, INDEX, "index", None)] if rank == 0 else files


def _written_objects(staging: ObjectPath, rank: int, written: Mapping[str, Upload]) -> list[File]:
    """Of another process that has written nothing is known here: the store lists its objects, and computes their checksums."""
    if written:
        records = [
            dataclasses.replace(upload.file("state", rank), name=name)
            for name, upload in written.items()
        ]
    else:
        found = staging.below().items()
        records = [File(name=name, kind="state", rank=rank, bytes=size) for name, size in found]
    index = [
        dataclasses.replace(each, kind="index", rank=None)
        for each in records
        if each.name == INDEX and rank == 0
    ]
    return [each for each in records if each.name.startswith(f"__{rank}_")] + index


def first_cause(error: BaseException) -> Exception:
    """The error of the lowest rank that has failed. DCP joins those of all ranks in one that is no `Exception`."""
    if isinstance(error, dcp.api.CheckpointException):
        rank = min(error.failures)
        cause = _of_the_disk(error.failures[rank][0])
        return CheckpointError(f"rank {rank}: {type(cause).__name__}: {cause}")
    return error if isinstance(error, Exception) else CheckpointError(f"{type(error).__name__}: {error}")  # fmt: skip


def _of_the_disk(error: BaseException) -> BaseException:
    """The error of the system behind one of PyTorch's own, which tells only that its file is now too short."""
    earlier: BaseException | None = error
    while earlier is not None and not isinstance(earlier, OSError):
        earlier = earlier.__cause__ or earlier.__context__
    return earlier or error


@contextmanager
def telling_the_cause() -> Iterator[None]:
    """Raise `first_cause` of an error of DCP."""
    try:
        yield
    except dcp.api.CheckpointException as error:
        raise first_cause(error) from error


def load(version: Version, folder: Path, training_state: TrainingState, rank: int) -> None:
    """Load a version of any number of ranks into the tensors of the training state. No rank waits for another.

    Raises CheckpointError where the files are not the whole state of this training_state.
    """
    state = state_of(training_state.native_objects, rank)
    if (other := statistics_rank(version, rank)) != rank:
        state["statistics"] = {str(other): state["statistics"][str(rank)]}
    with reading(folder / INDEX):
        try:
            dcp.load(state, storage_reader=_Reader(folder, version.files), no_dist=True)
        except dcp.api.CheckpointException as error:
            raise error.failures[0][0] from error
    load_rest(version, folder, training_state, rank)


class _Reader(FileSystemReader):
    def __init__(self, folder: Path, names: Collection[str]) -> None:
        super().__init__(folder)
        self._names = names

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / INDEX).open("rb") as file:
            index = _Unpickler(file).load()
        _check(index, self._names)
        index.storage_meta.load_id = self.load_id
        return index

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """As DCP does, one file after another, so that an error names the file."""
        items = defaultdict(list)
        for item in plan.items:
            items[self.storage_data[item.storage_index].relative_path].append(item)
        for name, of_file in items.items():
            with reading(Path(self.path) / name):
                super().read_data(dataclasses.replace(plan, items=of_file), planner)
        read: Future[None] = Future()
        read.set_result(None)
        return read


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        if (module, name) == ("builtins", "getattr"):
            return _member
        raise pickle.UnpicklingError(f"{module}.{name} is no part of an index")


def _member(of: object, name: str) -> Enum:
    """The member of an enumeration, for which Python 3.11.0 to 3.11.3 write a `getattr`."""
    if not (isinstance(of, type) and issubclass(of, Enum)):
        raise pickle.UnpicklingError(f"getattr of {of!r} is no part of an index")
    return of[name]


def _check(index: Any, names: Collection[str]) -> None:
    if not isinstance(index, Metadata):
        raise TypeError(f"it is no index, but {type(index).__name__}")
    for name, entry in index.state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            raise TypeError(f"{name} is no tensor, but {type(entry).__name__}")
        if not _is_whole(entry):
            # DCP would leave elements that no part holds as they are.
            raise ValueError(f"{name} is not there as a whole")
    for place in index.storage_data.values():
        if not isinstance(place, _StorageInfo) or place.transform_descriptors:
            raise TypeError("a tensor lies in a way that this version of ckptbench does not write")
        if place.relative_path not in names:
            raise ValueError(
                f"a tensor lies in {place.relative_path}, which is no file of the version"
            )


def _is_whole(entry: TensorStorageMetadata) -> bool:
    """Whether the parts hold every element once: a part is the whole tensor, or some rows of it, as shards are."""
    begin = torch.Size([0] * len(entry.size))
    if entry.chunks == [ChunkStorageMetadata(offsets=begin, sizes=entry.size)]:
        return True
    reached = 0
    for part in sorted(entry.chunks, key=lambda part: (tuple(part.offsets), tuple(part.sizes))):
        of_rows = (reached, *begin[1:]), entry.size[1:]
        if (tuple(part.offsets), part.sizes[1:]) != of_rows or not entry.size:
            return False
        reached += part.sizes[0]
    return entry.size[:1] == (reached,)
