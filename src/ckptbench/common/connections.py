"""The connections of this process: those that a library has made, and how to end them from outside.

Gloo has no abort (PyTorch 2.13): its connections stay until nothing refers to a process group any more, as a failed step still does.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable
from contextlib import suppress

Connection = tuple[int, int]
"""Descriptor and inode. Another socket may get the descriptor later, but not with this inode."""


def connections() -> set[Connection]:
    """All sockets of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the folder itself is closed by now
            known = os.fstat(int(name))
            if stat.S_ISSOCK(known.st_mode):
                found.add((int(name), known.st_ino))
    return found


def shut_down(made: Iterable[Connection]) -> None:
    """Have both sides of these connections find them closed, also where a thread waits for them. Sockets that listen stay."""
    for descriptor, _ in connections() & set(made):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as duplicate:
            # Gloo ends the process where one that listens is ended.
            if not duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                duplicate.shutdown(socket.SHUT_RDWR)
