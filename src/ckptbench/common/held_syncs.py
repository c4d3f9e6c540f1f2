"""Calls of fsync and fdatasync that wait for another process, which lets each of them run or fail: seccomp's notifications.

A disk that fails shows it in these calls: what a program wrote into the page cache is lost when the kernel writes it back, and
the next fsync returns EIO (fsync(2)). The rules and the numbers are those of seccomp(2) and seccomp_unotify(2), which need
Linux 5.7.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import struct
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from typing import NamedTuple

PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER = 1
ALL_THREADS, NEW_LISTENER, NO_THREAD_ERRORS = 1, 8, 16
NOTIFY, ALLOW = 0x7FC00000, 0x7FFF0000
LET_RUN = 1
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
"""Instructions of classic BPF (linux/bpf_common.h): load a word, compare it with a constant, return a constant."""
NUMBER_AT, ARCHITECTURE_AT = 0, 4
"""Where the call's number and the architecture are in `struct seccomp_data`."""
RECEIVE, SEND = 0xC0502100, 0xC0182101
"""The requests SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND."""
NOTIFICATION = struct.Struct("=QIIiIQ6Q")
"""id, thread, flags, number of the call, architecture, instruction, arguments: `struct seccomp_notif`."""
ANSWER = struct.Struct("=QqiI")
"""id, value, error, flags: `struct seccomp_notif_resp`."""


class Calls(NamedTuple):
    """The numbers of an architecture."""

    architecture: int
    seccomp: int
    fsync: int
    fdatasync: int


CALLS = {
    "x86_64": Calls(0xC000003E, 317, 74, 75),
    "aarch64": Calls(0xC00000B7, 277, 82, 83),
}


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def hold_syncs() -> int:
    """Hold the syncs of this process and of all that it starts from now on. It cannot be undone.

    Returns a file descriptor that this process must hand on: the process that has it answers them, see `answer`. Once nobody
    has it they fail with ENOSYS.

    Raises OSError where the kernel has no such notifications, or another supervisor has taken them.
    """
    calls = CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, f"its numbers are not known for {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    code = _filter(calls)
    program = _Program(len(code) // 8, code)
    flags = ALL_THREADS | NEW_LISTENER | NO_THREAD_ERRORS
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    descriptor: int = libc.syscall(calls.seccomp, SET_MODE_FILTER, flags, ctypes.byref(program))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


def _filter(calls: Calls) -> bytes:
    """Notify of both calls and allow all others. Another architecture's numbers mean other calls."""
    instructions = (
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 0, 4, calls.architecture),
        (LOAD, 0, 0, NUMBER_AT),
        (JUMP_IF_EQUAL, 1, 0, calls.fsync),
        (JUMP_IF_EQUAL, 0, 1, calls.fdatasync),
        (RETURN, 0, 0, NOTIFY),
        (RETURN, 0, 0, ALLOW),
    )
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


def answer(descriptor: int, fails: Callable[[Path], bool]) -> None:
    """Answer the calls that are held, until the processes have ended: EIO to those of a file that `fails`.

    Closes the descriptor however it ends. Otherwise the callers would wait for ever for an answer.
    """
    try:
        _answer(descriptor, fails)
    finally:
        os.close(descriptor)


def _answer(descriptor: int, fails: Callable[[Path], bool]) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not poll.poll()[0][1] & select.POLLHUP:
        call = bytearray(NOTIFICATION.size)
        # ENOENT: the caller has been killed meanwhile, or a signal has come and it calls again.
        with suppress(FileNotFoundError, InterruptedError):
            ioctl(descriptor, RECEIVE, call)
            number, thread, _, _, _, _, file, *_ = NOTIFICATION.unpack(call)
            error, flags = (-errno.EIO, 0) if _fails(thread, file, fails) else (0, LET_RUN)
            ioctl(descriptor, SEND, ANSWER.pack(number, 0, error, flags))


def _fails(thread: int, file: int, fails: Callable[[Path], bool]) -> bool:
    try:
        path = os.readlink(f"/proc/{thread}/fd/{file}")
    except OSError:  # there is no such file, or the thread has ended: the kernel says it better
        return False
    return fails(Path(path))
