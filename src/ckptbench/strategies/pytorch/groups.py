"""Process groups in which an engine's ranks meet, apart from those of training."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


class OwnGroup:
    """A group of all ranks for the saves of one engine: gloo mixes up messages of saves and of training in one group."""

    def __init__(self, world_size: int) -> None:
        """Every rank calls it. A rank that trains alone has met nobody, and some engines need a group even then."""
        self._made: list[Any] = []
        if world_size == 1 and not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            self._made.append(dist.group.WORLD)
        self.group = dist.new_group(backend="gloo")
        self._made.insert(0, self.group)

    def close(self) -> None:
        for group in self._made:
            dist.destroy_process_group(group)
