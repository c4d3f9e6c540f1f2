"""The strategies `null` and `stall`, whose cost is known. The audit measures them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, done
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.run.position import Position

SPIN_S = 0.003
"""The end of a stall is spent computing: a sleep alone lasts as long as the kernel likes."""


class Null(Strategy):
    """Saves nothing, at once."""

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        (slot,) = slots
        return Shard(captured=done(None), written={slot.level: done(())})

    def load(self, version: Version, folder: Path) -> None:
        raise CheckpointError(f"{folder} holds nothing: use another strategy")


class Stall(Null):
    """Saves nothing, and blocks training for `ms` milliseconds."""

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        ends_s = time.perf_counter() + int(self._options["ms"]) / 1000
        shard = super().save(position, slots)
        time.sleep(max(0.0, ends_s - time.perf_counter() - SPIN_S))
        while time.perf_counter() < ends_s:
            pass
        return shard
