"""A save that has begun, with the times at which its parts end."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self

from ckptbench.machine.clock import clock
from ckptbench.runs.events import Durable
from ckptbench.runs.position import Position
from ckptbench.strategies.contract import Share


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A save that has begun, and the times at which its parts end, each taken in the thread that ends the part."""

    position: Position
    share: Share
    captured_ns: Future[int]
    written_ns: Mapping[str, Future[int]]
    """By level."""
    finished: Future[list[Durable]]
    """Done when this rank has nothing more to do for the save. Its result are the `durable` events of the rank that
    commits, one for each level.

    If the save fails in the background, it holds the first error.
    """
    removed: Future[None]
    """Done when old versions are removed as far as they can be, or need not be."""

    @classmethod
    def begin(cls, position: Position, share: Share) -> Self:
        # What is done already ends now: the capture comes first.
        captured_ns = _ended(share.captured)
        written_ns = {level: _ended(written) for level, written in share.written.items()}
        return cls(position, share, captured_ns, written_ns, Future(), Future())


def _ended(future: Future[Any]) -> Future[int]:
    """The time at which a future is done, ns of `machine.clock`, taken in the thread that ends it."""
    at_ns: Future[int] = Future()
    future.add_done_callback(lambda _: at_ns.set_result(clock()))
    return at_ns
