"""In a rank of a training whose save `check fail` refuses: start the process that answers for the disk, and say when it is full."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from ckptbench_probe.check import refused_calls
from ckptbench_probe.check.refused_calls import LET, REFUSE
from ckptbench_probe.check.refusing_store import LOG
from ckptbench_probe.process import PROCESS


class Refuser:
    """Of `at`: how, the updates between which calls are refused, and the saves before."""

    def __init__(self, folder: str, at: str) -> None:
        kind, begin, end, saves = at.split()
        self._from, self._until = int(begin), int(end)
        self._refuses = False
        log = os.path.join(PROCESS.trace.folder, LOG.format(os.getpid()))
        self._own, other = socket.socketpair()
        with other:
            words = [str(other.fileno()), os.path.realpath(folder), kind, saves, log]
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", refused_calls.__file__, *words],
                pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self._child = child
        ctypes.CDLL(None).prctl(refused_calls.SET_PTRACER, child.pid, 0, 0, 0)
        descriptor = refused_calls.ask()
        socket.send_fds(self._own, [b"0"], [descriptor])
        os.close(descriptor)

    def updated(self) -> None:
        refuses = self._from <= PROCESS.updates.done < self._until
        if refuses != self._refuses:
            self._refuses = refuses
            self._own.send(REFUSE if refuses else LET)


def refused(folder: Path) -> list[str]:
    """Paths below the folder of checkpoints of which calls were refused in a run, in the order of each rank."""
    return [
        json.loads(line)
        for file in sorted(folder.glob(LOG.format("*")))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
