"""One rank without a launcher, for tests over the NumPy framework."""

from __future__ import annotations

from ckptbench.frameworks.numpy_framework import NumpyFramework
from ckptbench.matrix.networks.models import linear
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext

__all__ = ["ALONE", "NumpyFramework", "Unasked", "linear"]

ALONE = RankContext(
    rank=0, world_size=1, local_rank=0, node="here", threads=1, addresses=("127.0.0.1:1",)
)


class Unasked(Link):
    """A connection to the launcher in which nobody asks to stop; or asks after the step `last_step`."""

    def __init__(self, last_step: int | None = None) -> None:
        self.last_step = last_step
        self.stopped: int | None = None
        self.is_replacement = False
        self.launched = None

    def may_enter(self, step: int) -> bool:
        return self.last_step is None or step <= self.last_step

    def hang_up(self) -> None:
        """Nobody listens."""

    def tell_stopped(self, steps_done: int) -> None:
        self.stopped = steps_done
