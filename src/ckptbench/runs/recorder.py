"""The trace of one rank: events with a monotonic clock, one JSON object a line.

Every time is an integer of nanoseconds of CLOCK_MONOTONIC (one clock for all ranks of a host); `start`
ties it to the wall clock. The events, by the order in which an attempt first writes them (`launch`, `meet`, `import`
and `join` come before `start`, the other phases after it):

| event | fields beside `event` |
| --- | --- |
| `phase` | `name` (`launch`, `meet` (the other ranks and the launcher), `import`, `join`, `data`, `build`; of an attempt that goes on from a checkpoint also `evict` (its pages leave the page cache: cold runs; `resident_bytes` stayed), `load`, `first_step`), `start_ns`, `end_ns`; of `load` also `read_bytes` (that this process had fetched from storage meanwhile, by the kernel's count; null where it keeps none) and `bytes` (of the files that this rank read) |
| `start` | `attempt` (from 1), `rank`, `world_size`, `host`, `pid`, `device`, `monotonic_ns`, `unix_ns`, `versions` |
| `state` | bytes that a checkpoint must hold: `model`, `optimizer`, `rest` (this rank's own); `parameters`, their count |
| `steps` | `epoch`, `first_step`, and lists with one value a step: `start_ns`, `end_ns`, `loss` |
| `checkpoint` | `step`, `epoch`, `start_ns`, `end_ns` (the loop is blocked between them: the stall); on the rank that writes also `written_ns` (the framework's own write returned), `synced_ns` (files on stable storage), `checked_ns` (their checksums known too), `durable_ns` (commit record too), `retained_ns` (old versions removed), `files` (bytes by name) |
| `epoch` | `epoch`, `start_ns`, `end_ns` (steps and checkpoints of the epoch, no evaluation), `samples` |
| `evaluation` | `epoch`, `start_ns`, `end_ns`, `samples`, `loss_sum`, `correct` (this rank's shard of the test set) |
| `stop` | `step` (completed steps): the attempt was told to stop, and its checkpoint is durable |
| `digest` | `step`, `epoch`, `when`, `tensors` and `rank_state` (digests by name: see `digest.py`). `when` is `end`, at the end of the run, always; in a proof also `epoch`, after every epoch, in killed runs `saved` (a checkpoint was committed) and `loaded` (the same state after the restart), and after the first step of any attempt that goes on `stepped`. `rank_state`, empty but in a proof, is what `Framework.rank_state` gives, and `position/data`: epoch and step in it of the next sample |
| `kill` | `step`, `epoch`, `inside` (null, or the stage of the checkpoint), `monotonic_ns`: this rank sent itself SIGKILL, as a killed history asks |
| `end` | `monotonic_ns` |

`step` counts completed steps of the whole run, so `first_step` 0 is the run's first step; a resumed attempt
appends to the same file, and where two attempts hold the same step the later one is what the run kept.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

clock = time.monotonic_ns


def boot_id() -> str:
    """Names the host and its boot: two processes with the same one share a monotonic clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Recorder:
    """Collects steps in memory and writes them in blocks, so that a step costs three appends."""

    def __init__(self, path: Path) -> None:
        _drop_torn_line(path)
        self._file = path.open("a", encoding="utf-8")
        self._first_step = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._losses: list[float] = []

    def step(self, index: int, start_ns: int, end_ns: int, loss: float) -> None:
        """Note the step whose index in the whole run is `index`; indices of a block are consecutive."""
        if not self._starts:
            self._first_step = index
        self._starts.append(start_ns)
        self._ends.append(end_ns)
        self._losses.append(loss)

    def write_steps(self, epoch: int) -> None:
        """Write the block of steps noted since the last call; call it outside every timed window."""
        if self._starts:
            self.event(
                "steps",
                epoch=epoch,
                first_step=self._first_step,
                start_ns=self._starts,
                end_ns=self._ends,
                loss=self._losses,
            )
        self._starts, self._ends, self._losses = [], [], []

    def event(self, event: str, **fields: Any) -> None:
        self._file.write(json.dumps({"event": event, **fields}, separators=(",", ":")) + "\n")
        self._file.flush()

    def phase(self, name: str, start_ns: int, end_ns: int, **fields: int | None) -> None:
        self.event("phase", name=name, start_ns=start_ns, end_ns=end_ns, **fields)

    def sync(self) -> None:
        """Put what was written on stable storage, where every node sees it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _drop_torn_line(path: Path) -> None:
    """Cut what a killed attempt left of its last line, so that what follows starts a line of its own."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
