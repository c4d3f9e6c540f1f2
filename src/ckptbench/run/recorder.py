"""The writer of one rank's trace: one event in each line. Module `events` defines the events."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from ckptbench.common.files import naming, open_regular, read_regular
from ckptbench.run.events import Event, Steps, to_json


class Recorder:
    """Collects steps in memory and writes them in blocks, so that a step costs only three appends.

    The threads of background saves may write events too.
    """

    def __init__(self, path: Path) -> None:
        """Continue the trace, or begin it. Raises OSError with the path, also where something else than a file lies there."""
        with naming(path):
            descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self._file = os.fdopen(descriptor, "a", encoding="utf-8")
            _drop_torn_line(descriptor, path)
        self._path = path
        self._writing = threading.Lock()
        self._first_step = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._losses: list[float] = []

    def step(self, index: int, start_ns: int, end_ns: int, loss: float) -> None:
        """Note the step with this index in the whole run. The indices of a block must be consecutive."""
        if not self._starts:
            self._first_step = index
        self._starts.append(start_ns)
        self._ends.append(end_ns)
        self._losses.append(loss)

    def write_steps(self, epoch: int) -> None:
        """Write the steps noted since the last call as one block. Call it outside all measured times."""
        if self._starts:
            block = Steps(
                epoch=epoch,
                first_step=self._first_step,
                start_ns=self._starts,
                end_ns=self._ends,
                loss=self._losses,
            )
            self.write(block)
        self._starts, self._ends, self._losses = [], [], []

    def write(self, event: Event) -> None:
        """Append the event. On return the operating system has it, but it may not yet be on stable storage.

        Raises OSError with the path of the trace.
        """
        line = json.dumps(to_json(event), separators=(",", ":")) + "\n"
        with self._writing, naming(self._path):
            self._file.write(line)
            self._file.flush()

    def sync(self) -> None:
        """Put all written events on stable storage: they survive a power cut, and every node sees them."""
        with naming(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the trace. No event may be written after this."""
        self._file.close()


def _drop_torn_line(descriptor: int, path: Path) -> None:
    """Remove an incomplete last line that a killed attempt has left, so that the next event starts a new line."""
    os.ftruncate(descriptor, read_regular(path).rfind(b"\n") + 1)
