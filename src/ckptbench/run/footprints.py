"""Samples of a rank's memory, threads and processes, written into its trace outside all measured times."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from typing import Any

from ckptbench.common.clock import clock
from ckptbench.common.footprint import Footprint
from ckptbench.run.events import Memory, MemoryMoment
from ckptbench.run.recorder import Recorder


class Footprints:
    """Takes the samples of one rank. Any thread may call it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def sample(self, when: MemoryMoment, step: int) -> None:
        """Take a sample now and write it."""
        now = dataclasses.asdict(Footprint.now())
        self._recorder.write(Memory(when=when, step=step, at_ns=clock(), **now))

    def look_after(self, part: Future[Any], when: MemoryMoment, step: int) -> Future[None]:
        """Take a sample when `part` is done, in the thread that ends it. The result is done when the sample is written."""
        looked: Future[None] = Future()

        def look(_: Future[Any]) -> None:
            try:
                self.sample(when, step)
            except Exception as error:  # noqa: BLE001 (whoever waits for the sample raises it)
                looked.set_exception(error)
            else:
                looked.set_result(None)

        part.add_done_callback(look)
        return looked
