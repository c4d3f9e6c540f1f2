"""The strategy `torchsnapshot`: `torchsnapshot.Snapshot.async_take` copies the state and writes it while training continues.

Here everything is marked as replicated, so every rank copies and writes its part of the state, in threads of torchsnapshot
0.1.0. The documentation's first example marks nothing; then every rank writes everything, and two ranks cannot load a
version written by one.

- A restore does not notice tensors missing from the version, or a file that is too short; the strategy checks both. A
  restore hangs if only some ranks call it for a part of the state.
- Only `wait` reports background errors. Here the next save raises them on every rank.
- It syncs nothing, and allocates new memory for each copy.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import torchsnapshot.storage_plugin
from torchsnapshot import Snapshot, StateDict
from torchsnapshot.io_types import ReadIO, WriteIO
from torchsnapshot.manifest import (
    ChunkedTensorEntry,
    Entry,
    TensorEntry,
    is_container_entry,
)
from torchsnapshot.snapshot import PendingSnapshot
from torchsnapshot.storage_plugins.fs import FSStoragePlugin

from ckptbench.checkpointing.contract import (
    Shard,
    Slot,
    Strategy,
    StrategyContext,
    done,
    written_file,
)
from ckptbench.checkpointing.strategies.pytorch.state import (
    OwnGroup,
    flat,
    load_rest,
    save_rest,
    state_of,
    statistics_rank,
)
from ckptbench.checkpointing.version import Version
from ckptbench.frameworks.contract import Arrays, reading
from ckptbench.run.events import File
from ckptbench.run.position import Position

INDEX = ".snapshot_metadata"
_REPLICATED = ["model/**", "optimizer/**"]
"""What all ranks hold alike, as patterns of the library: it divides these among the ranks."""


class TorchSnapshot(Strategy):
    """Blocks until this rank's part is copied."""

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._group = OwnGroup(self._world.world_size)

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        (slot,) = slots
        staging = slot.open()
        self._on_stage("begun")
        own = self._training_state.local_state()
        pending = Snapshot.async_take(
            str(staging), self._app_state(), pg=self._group.group, replicated=_REPLICATED
        )
        self._on_stage("copied")
        written: Future[tuple[File, ...]] = Future()
        threading.Thread(target=self._finish, args=(written, staging, own, pending)).start()
        return Shard(captured=done(None), written={slot.level: written})

    def _app_state(self) -> dict[str, StateDict]:
        state = state_of(self._training_state.native_objects, self._world.rank)
        return {name: StateDict(part) for name, part in state.items()}

    def _finish(
        self,
        written: Future[tuple[File, ...]],
        staging: Path,
        own: Arrays,
        pending: PendingSnapshot,
    ) -> None:
        try:
            pending.thread.join()
            names = _Storage.written.pop(str(staging), [])
            if pending.exc_info is not None:
                raise pending.exc_info[1]
            rank = self._world.rank
            files = (save_rest(staging, rank, own), *(_file(staging, name, rank) for name in names))
            self._on_stage("written")
        except Exception as error:  # noqa: BLE001 (the training thread raises it)
            written.set_exception(error)
        else:
            written.set_result(files)

    def load(self, version: Version, folder: Path) -> None:
        rank = self._world.rank
        with reading(folder / INDEX):
            self._restore(Snapshot(str(folder), pg=self._group.group), version)
        load_rest(version, folder, self._training_state, rank)

    def _restore(self, snapshot: Snapshot, version: Version) -> None:
        """Load in place. All ranks meet in it."""
        state, rank = self._app_state(), self._world.rank
        statistics, source = state["statistics"][str(rank)], statistics_rank(version, rank)
        _check(snapshot, version.files, {
            **{f"0/{name}": tensor for name, tensor in flat({k: state[k].data for k in ("model", "optimizer")})},
            **{f"{source}/statistics/{source}/{name}": tensor for name, tensor in statistics.items()},
        })  # fmt: skip
        if self._world.world_size <= version.world_size:
            snapshot.restore(state)
            return
        # The library gives a rank nothing of another, and hangs where only some ranks restore a part.
        del state["statistics"]
        snapshot.restore(state)
        for name, tensor in statistics.items():
            snapshot.read_object(f"{source}/statistics/{source}/{name}", obj_out=tensor)

    def close(self) -> None:
        self._group.close()


def _file(staging: Path, name: str, rank: int) -> File:
    if name == INDEX:
        return written_file(staging, name, "index", None)
    return written_file(staging, name, "state", rank)


def _check(snapshot: Snapshot, names: Collection[str], wanted: dict[str, Any]) -> None:
    """Check that the index has every wanted tensor, and nothing that must be unpickled or that lies elsewhere."""
    found = snapshot.get_manifest()
    for path, entry in found.items():
        for tensor in _tensors_of(path, entry):
            if tensor.serializer != "buffer_protocol":
                raise TypeError(f"{path} is written by {tensor.serializer}, which is not read here")
            if tensor.location not in names:
                raise ValueError(
                    f"{path} lies in {tensor.location}, which is no file of the version"
                )
    for path, tensor in wanted.items():
        if path not in found:
            raise ValueError(f"it has no {path}")
        entry = found[path]
        if (tuple(entry.shape), entry.dtype) != (tuple(tensor.shape), str(tensor.dtype)):
            raise ValueError(
                f"{path} has shape {entry.shape} and type {entry.dtype}, here {tuple(tensor.shape)} and {tensor.dtype}"
            )


def _tensors_of(path: str, entry: Entry) -> list[TensorEntry]:
    if is_container_entry(entry):
        return []
    if isinstance(entry, TensorEntry):
        return [entry]
    if isinstance(entry, ChunkedTensorEntry):
        _check_chunks(path, entry)
        return [chunk.tensor for chunk in entry.chunks]
    raise TypeError(f"{path} is no tensor, but {type(entry).__name__}")


def _check_chunks(path: str, entry: ChunkedTensorEntry) -> None:
    """Check that the chunks, which the library cuts along the first axis, are the whole tensor.

    It would leave rows that no chunk holds as they are.
    """
    first, *others = entry.shape
    reached = 0
    for chunk in sorted(entry.chunks, key=lambda chunk: chunk.offsets):
        if chunk.offsets != [reached, *(0 for _ in others)] or chunk.sizes[1:] != others:
            raise ValueError(f"{path} has a chunk at {chunk.offsets}, not at its row {reached}")
        reached += chunk.sizes[0]
    if reached != first:
        raise ValueError(
            f"{path} is not there as a whole: its chunks have {reached} of {first} rows"
        )


class _Storage(FSStoragePlugin):
    """The library's own storage, which notes the files that this rank writes and names a file that cannot be read."""

    written: ClassVar[defaultdict[str, list[str]]] = defaultdict(list)
    """Names by folder."""

    async def write(self, write_io: WriteIO) -> None:
        await super().write(write_io)
        self.written[self.root].append(write_io.path)

    async def read(self, read_io: ReadIO) -> None:
        with reading(Path(self.root) / read_io.path):
            await super().read(read_io)
            if read_io.byte_range is not None:
                first, end = read_io.byte_range
                if (
                    read_io.buf.getbuffer().nbytes != end - first
                ):  # the library would leave the rest as it is
                    raise ValueError(f"it has no bytes {first} to {end}")


torchsnapshot.storage_plugin.FSStoragePlugin = _Storage
