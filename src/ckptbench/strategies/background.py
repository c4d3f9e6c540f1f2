"""Memory that a rank and its writing process share, and the rank's end of that process (`writer.py`)."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.errors import CheckpointError
from ckptbench.common.memory_kills import MemoryKills, ended

CLOSING_SECONDS = 60.0
"""How long the writing process may take to end when nothing is left to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A file to write, and the part of the memory that it gets."""

    path: Path
    """It does not exist yet."""
    spare: Path
    """If this file exists, it is moved to `path` and written over."""
    first: int
    end: int


class BackgroundWriter:
    """Memory of a fixed size, kept for all saves, and the process that writes it to files.

    The memory has no name, so nothing of it is left when both processes have ended, however they ended.
    """

    def __init__(self, memory: mmap.mmap, process: subprocess.Popen[str]) -> None:
        self._memory = memory
        self._process = process
        self._sending = threading.Lock()
        self._kills = MemoryKills.now()

    @classmethod
    def start(cls, nbytes: int) -> Self:
        """Make the memory and start the process. Every page is touched, so that the first save finds it there."""
        descriptor = os.memfd_create("ckptbench")
        try:
            os.posix_fallocate(descriptor, 0, nbytes)
            command = [sys.executable, "-m", "ckptbench.strategies.writer"]
            process = subprocess.Popen(
                [*command, str(descriptor), str(nbytes), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[descriptor],
            )
            # MAP_POPULATE: this process's page tables know the pages, too.
            return cls(
                mmap.mmap(descriptor, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE), process
            )
        finally:
            os.close(descriptor)

    @property
    def nbytes(self) -> int:
        return len(self._memory)

    @property
    def memory(self) -> NDArray[np.uint8]:
        """The shared memory, shape (nbytes,). It must not be changed while `write` runs."""
        return np.frombuffer(self._memory, np.uint8)

    def captured(self, nbytes: int) -> None:
        """Tell the process that the first `nbytes` of the memory are those to write. Another thread may be in `write`.

        It must be told before a capture, too. If the process has died, `write` says so.
        """
        with suppress(BrokenPipeError):
            self._send({"captured": nbytes})

    def write(self, destinations: Sequence[Destination]) -> list[str]:
        """Have the process write the memory to files, as far as it is captured, until all of it is. Returns the checksums.

        Raises CheckpointError if a file cannot be written, or if the process has died.
        """
        assert self._process.stdout is not None
        folder = destinations[0].path.parent
        try:
            self._send({"files": [_request(each) for each in destinations]})
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            how = ended(self._process.wait(), self._kills)
            raise CheckpointError(f"the process that writes to {folder} in the background {how}")
        content: dict[str, Any] = json.loads(answer)
        if error := content.get("error"):
            raise CheckpointError(f"{content['path']} cannot be written in the background: {error}")
        checksums: list[str] = content["checksums"]
        return checksums

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with self._sending:
            print(json.dumps(request), file=self._process.stdin, flush=True)

    def close(self) -> None:
        """End the process. Nothing may be in writing."""
        self._process.communicate(timeout=CLOSING_SECONDS)


def _request(destination: Destination) -> dict[str, Any]:
    return {
        "path": str(destination.path),
        "spare": str(destination.spare),
        "first": destination.first,
        "end": destination.end,
    }
