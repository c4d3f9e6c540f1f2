"""Reads from a checkpoint of `torch.distributed.checkpoint` the parts that one rank has written."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.distributed.checkpoint import planner as planning
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

Part = tuple[str, tuple[int, ...]]
"""Name of a tensor, and the offset of a part of it."""


class Planner(planning.LoadPlanner):
    """Of the parts that are wanted, `tensors` gets those that files of this rank have, up to a number of bytes; `left` are those not looked at."""

    def __init__(self, wanted: list[Part], rank: int, most_bytes: int) -> None:
        self._wanted = wanted
        self._prefix = f"__{rank}_"
        self._most_bytes = most_bytes
        self._metadata: Any = None
        self.tensors: dict[Part, torch.Tensor] = {}
        self.left: list[Part] = []
        self.elsewhere = 0
        """Parts that files of other ranks have."""

    def set_up_planner(
        self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False
    ) -> None:
        self._metadata = metadata

    def create_local_plan(self) -> Any:
        items, size = [], 0
        for place, (name, offset) in enumerate(self._wanted):
            if size >= self._most_bytes:
                self.left = self._wanted[place:]
                break
            chunk = self._chunk(name, offset)
            if chunk is not None:
                whole = self._metadata.state_dict_metadata[name]
                part = torch.empty(chunk.sizes, dtype=whole.properties.dtype)
                self.tensors[name, offset] = part
                items += create_read_items_for_chunk_list(name, whole, [chunk])
                size += part.numel() * part.element_size()
        return planning.LoadPlan(items)

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
        raise AssertionError("no bytes are planned")

    def resolve_tensor(self, read_item: Any) -> torch.Tensor:
        index = read_item.dest_index
        part = self.tensors[index.fqn, tuple(index.offset)]
        for dimension, (begin, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            part = part.narrow(dimension, begin, length)
        return part

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        """The bytes are in the part already."""
