"""The file that one process writes its events to, a JSON object a line. It is opened at the first event: a process without one leaves none."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable

from ckptbench_probe.harmless import say
from ckptbench_probe.variables import FOLDER, RESTARTS, RUN, seat

FORMAT = 1
LARGEST_ARGUMENT = 200
"""Characters of an argument of the command that are kept."""


def _nothing() -> None:
    """What is done by default when the file is opened."""


class Trace:
    """Writes whole lines at the end of the file, at once: what was written survives the process, however it ends.

    Only its opening has a lock, as a signal handler that saves may interrupt any line here.
    """

    def __init__(
        self,
        folder: str | None = None,
        run: str | None = None,
        opened: Callable[[], None] = _nothing,
    ) -> None:
        self._folder = folder
        self._run = run
        self._file: int | None = None
        self._queued: deque[dict[str, Any]] = deque()
        self._opening = threading.RLock()
        self._on_opened = opened
        self._broken = False

    @property
    def folder(self) -> str:
        return self._folder or os.environ.get(FOLDER, "")

    @property
    def run(self) -> str:
        return self._run or os.environ.get(RUN, "")

    def use(self, folder: str) -> None:
        """From now on, events go to this folder: to a new file where they went to another."""
        if self._file is None or folder != self.folder:
            self.renew()
            self._broken = False
            self._folder = folder
            self._run = os.environ.get(RUN) or f"session-{os.getpid()}-{time.time_ns()}"

    @property
    def used(self) -> bool:
        """Whether there was an event."""
        return self._file is not None or bool(self._queued)

    def write(self, event: str, **fields: Any) -> None:
        """Does nothing after the folder could not be written to."""
        self.queue(event, **fields)
        self.flush()

    def queue(self, event: str, **fields: Any) -> None:
        """To be written with the next event, or by the thread of `watcher`: a write gives the interpreter's lock to threads that save."""
        self._queued.append({"event": event, **fields})

    def flush(self) -> None:
        try:
            while self._queued and not self._broken:
                if self._file is None:
                    self._open()
                self._put([self._queued.popleft() for _ in range(len(self._queued))])
        except IndexError:
            return  # another thread has written the rest
        except OSError as error:
            self._broken = True
            say(
                f"{self.folder or 'no folder'} cannot be written to ({error.strerror or error}): process {os.getpid()} is no longer measured"
            )

    def _open(self) -> None:
        if not self.folder:
            raise FileNotFoundError(0, f"{FOLDER} is not set")
        with self._opening:
            if self._file is not None:
                return
            os.makedirs(self.folder, exist_ok=True)
            name = f"trace-{socket.gethostname()}-{os.getpid()}-{time.monotonic_ns()}.jsonl"
            path = os.path.join(self.folder, name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open(path, flags, 0o644)
            _write(file, [_opening(self.run)])  # before others find the file and write to it
            if self._file is not None:  # a signal handler has opened one meanwhile
                os.close(file)
                os.unlink(path)
                return
            self._file = file
        self._on_opened()

    def _put(self, events: list[dict[str, Any]]) -> None:
        assert self._file is not None
        _write(self._file, events)

    def renew(self) -> None:
        """In a forked child: its events go to a file of its own."""
        if self._file is not None:
            os.close(self._file)
        self._file = None
        self._queued.clear()
        self._opening = threading.RLock()


def _write(file: int, events: list[dict[str, Any]]) -> None:
    import json

    lines = [json.dumps(event, separators=(",", ":")) + "\n" for event in events]
    os.write(file, "".join(lines).encode())


def _opening(run: str) -> dict[str, Any]:
    """Who writes this file, and how its clock fits those of other nodes."""
    own = seat()
    restarts = [os.environ[name] for name in RESTARTS if os.environ.get(name, "").isdigit()]
    return {
        "event": "process",
        "format": FORMAT,
        "run": run,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "boot": _boot(),
        "at_ns": time.monotonic_ns(),
        "unix_ns": time.time_ns(),
        "born_ns": _born_ns(),
        "rank": own.rank if own else None,
        "ranks": own.ranks if own else None,
        "restarts": int(restarts[0]) if restarts else 0,
        "python": sys.version.split()[0],
        "command": [str(word)[:LARGEST_ARGUMENT] for word in getattr(sys, "argv", [])],
    }


def _boot() -> str:
    """Processes of one boot of one node share the monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _born_ns() -> int | None:
    """When the process began, by the clock of the host's start, which is the monotonic one on hosts that never sleep."""
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(after_name[19]) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
