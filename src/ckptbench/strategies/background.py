"""Memory that a rank and its writing process share, and the rank's end of that process (`writer.py`)."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.errors import CheckpointError

CLOSING_SECONDS = 60.0
"""How long the writing process may take to end when nothing is left to write."""


class BackgroundWriter:
    """Memory of a fixed size, kept for all saves, and the process that writes it to files.

    The memory has no name, so nothing of it is left when both processes have ended, however they ended.
    """

    def __init__(self, memory: mmap.mmap, process: subprocess.Popen[str]) -> None:
        self._memory = memory
        self._process = process

    @classmethod
    def start(cls, nbytes: int) -> Self:
        descriptor = os.memfd_create("ckptbench")
        try:
            os.truncate(descriptor, nbytes)
            command = [sys.executable, "-m", "ckptbench.strategies.writer"]
            process = subprocess.Popen(
                [*command, str(descriptor), str(nbytes), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[descriptor],
            )
            return cls(mmap.mmap(descriptor, nbytes), process)
        finally:
            os.close(descriptor)

    @property
    def nbytes(self) -> int:
        return len(self._memory)

    @property
    def memory(self) -> NDArray[np.uint8]:
        """The shared memory, shape (nbytes,). It must not be changed while `write` runs."""
        return np.frombuffer(self._memory, np.uint8)

    def write(self, path: Path, nbytes: int) -> None:
        """Have the process write the first `nbytes` of the memory to a new file. Returns when it has.

        Raises CheckpointError if the file cannot be written, or if the process has died.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(
                json.dumps({"path": str(path), "bytes": nbytes}),
                file=self._process.stdin,
                flush=True,
            )
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise CheckpointError(
                f"the process that writes {path} in the background has ended with status {self._process.wait()}"
            )
        if error := json.loads(answer).get("error"):
            raise CheckpointError(f"{path} cannot be written in the background: {error}")

    def close(self) -> None:
        """End the process. Nothing may be in writing."""
        self._process.communicate(timeout=CLOSING_SECONDS)
