"""Reads from a checkpoint of `torch.distributed.checkpoint` the parts that one rank has written."""

from __future__ import annotations

import contextlib
import math
import pickle
from typing import Any, Union

import torch
from torch.distributed.checkpoint import planner as planning
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

Part = Union[tuple[str, tuple[int, ...]], str]
"""Name of a tensor, and the offset of a part of it; name of any other value."""


class Planner(planning.LoadPlanner):
    """Of the parts that are wanted, `tensors` gets those that files of this rank have, up to a number of bytes; `left` are those not looked at."""

    def __init__(self, wanted: list[Part], rank: int, most_bytes: int) -> None:
        self._wanted = wanted
        self._prefix = f"__{rank}_"
        self._most_bytes = most_bytes
        self._metadata: Any = None
        self.tensors: dict[Part, Any] = {}
        self.left: list[Part] = []
        self.elsewhere = 0
        """Parts that files of other ranks have."""

    def set_up_planner(
        self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False
    ) -> None:
        self._metadata = metadata

    def create_local_plan(self) -> Any:
        items, size = [], 0
        for place, wanted in enumerate(self._wanted):
            if size >= self._most_bytes:
                self.left = self._wanted[place:]
                break
            if isinstance(wanted, str):
                items += self._value(wanted)
                continue
            name, offset = wanted
            chunk = self._chunk(name, offset)
            if chunk is not None:
                whole = self._metadata.state_dict_metadata[name]
                part = torch.empty(chunk.sizes, dtype=whole.properties.dtype)
                self.tensors[name, offset] = part
                items += create_read_items_for_chunk_list(name, whole, [chunk])
                size += part.numel() * part.element_size()
        return planning.LoadPlan(items)

    def _value(self, name: str) -> list[planning.ReadItem]:
        """Nothing where the file does not have it, or another rank has written it."""
        index, none = MetadataIndex(name), torch.Size((0,))
        stored = self._metadata.storage_data.get(index)
        if stored is None:
            return []
        if not stored.relative_path.startswith(self._prefix):
            self.elsewhere += 1
            return []
        return [planning.ReadItem(planning.LoadItemType.BYTE_IO, index, none, index, none, none)]

    def _chunk(self, name: str, offset: tuple[int, ...]) -> ChunkStorageMetadata | None:
        """None where the file has no such part, or another rank has written it."""
        whole = self._metadata.state_dict_metadata.get(name)
        stored = self._metadata.storage_data.get(MetadataIndex(name, torch.Size(offset)))
        if stored is None or not isinstance(whole, TensorStorageMetadata):
            return None
        if not stored.relative_path.startswith(self._prefix):
            self.elsewhere += 1
            return None
        return next(
            (
                chunk
                for chunk in whole.chunks
                if tuple(chunk.offsets) == offset and math.prod(chunk.sizes)
            ),
            None,
        )

    def create_global_plan(self, global_plan: Any) -> Any:
        return global_plan

    def finish_plan(self, central_plan: Any) -> Any:
        return central_plan

    def load_bytes(self, read_item: Any, value: Any) -> None:
        """Only plain values are wanted. One of a type of the program's own is not read, and said to be not compared."""
        with contextlib.suppress(pickle.UnpicklingError):
            self.tensors[read_item.dest_index.fqn] = torch.load(value, weights_only=True)

    def resolve_tensor(self, read_item: Any) -> torch.Tensor:
        index = read_item.dest_index
        part = self.tensors[index.fqn, tuple(index.offset)]
        for dimension, (begin, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            part = part.narrow(dimension, begin, length)
        return part

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        """The bytes are in the part already."""
