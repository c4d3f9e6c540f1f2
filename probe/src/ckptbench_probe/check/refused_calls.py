"""Calls that write below a folder and are refused, as by a full disk: seccomp's notifications, without root.

The kernel asks another process about each call of a rank that writes: this file, run as a program. It counts the bytes of earlier saves, and refuses calls while the
rank says so. The rules and the numbers are those of seccomp(2) and seccomp_unotify(2), which need Linux 5.7. It imports nothing of the probe, so it starts in a moment.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import select
import socket
import struct
import sys
from contextlib import suppress
from fcntl import ioctl

SET_NO_NEW_PRIVS, SET_PTRACER = 38, 0x59616D61
"""Of prctl(2)."""
SET_MODE_FILTER = 1
ALL_THREADS, NEW_LISTENER, NO_THREAD_ERRORS = 1, 8, 16
NOTIFY, ALLOW = 0x7FC00000, 0x7FFF0000
LET_RUN = 1
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
"""Instructions of classic BPF (linux/bpf_common.h)."""
NUMBER_AT, ARCHITECTURE_AT = 0, 4
"""Where the call's number and the architecture are in `struct seccomp_data`."""
RECEIVE, SEND = 0xC0502100, 0xC0182101
"""The requests SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND."""
NOTIFICATION = struct.Struct("=QIIiIQ6Q")
"""id, thread, flags, number of the call, architecture, instruction, arguments: `struct seccomp_notif`."""
ANSWER = struct.Struct("=QqiI")
"""id, value, error, flags: `struct seccomp_notif_resp`."""
PIECE = struct.Struct("=QQ")
"""Address, length: `struct iovec`."""
LONGEST_PATH = 4096
ERRORS = {"full": errno.ENOSPC, "quota": errno.EDQUOT, "unwritable": errno.EACCES}
REFUSE, LET = b"1", b"0"
"""What the rank says."""

ARCHITECTURES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
"""The number of each, and that of its call `seccomp`."""
WRITES: dict[str, dict[int, int]] = {
    "x86_64": {1: 2, 18: 2, 40: 3, 326: 4, 285: 3},
    "aarch64": {64: 2, 68: 2, 71: 3, 285: 4, 47: 3},
}
"""write, pwrite64, sendfile, copy_file_range, fallocate: which argument is the number of bytes."""
VECTORS = {"x86_64": (20, 296, 328), "aarch64": (66, 70, 287)}
"""writev, pwritev, pwritev2: the bytes lie in pieces."""
TARGETS: dict[str, dict[int, int]] = {"x86_64": {40: 0, 326: 2}, "aarch64": {71: 0, 285: 2}}
"""Which argument is the file, where it is not the first one."""
SOURCES: dict[str, dict[int, int]] = {"x86_64": {40: 1, 326: 0}, "aarch64": {71: 1, 285: 0}}
"""Which argument is the file that is copied: a program may ask for more bytes than it has."""
OPENS: dict[str, dict[int, tuple[int | None, int, int]]] = {
    "x86_64": {2: (None, 0, 1), 257: (0, 1, 2)},
    "aarch64": {56: (0, 1, 2)},
}
"""open, openat: the arguments that are the folder, the path, and the flags."""
CHANGES: dict[str, dict[int, tuple[int | None, int]]] = {
    "x86_64": {85: (None, 0), 83: (None, 0), 258: (0, 1), 82: (None, 1), 264: (2, 3), 316: (2, 3), 87: (None, 0), 263: (0, 1), 84: (None, 0), 88: (None, 1), 266: (1, 2), 86: (None, 1), 265: (2, 3)},
    "aarch64": {34: (0, 1), 38: (2, 3), 276: (2, 3), 35: (0, 1), 36: (1, 2), 37: (2, 3)},
}  # fmt: skip
"""creat, mkdir, rename, unlink, rmdir, symlink, link and their kin: the arguments that are the folder and the path of what is made or removed."""

MOVES: dict[str, dict[int, tuple[int | None, int]]] = {
    "x86_64": {82: (None, 0), 264: (0, 1), 316: (0, 1), 86: (None, 0), 265: (0, 1)},
    "aarch64": {38: (0, 1), 276: (0, 1), 37: (0, 1)},
}
"""Of these, rename and link: the arguments that are the folder and the path of what is there before."""


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def ask() -> int:
    """From now on the kernel asks about calls of this process that write, and of those that it starts. This cannot be undone.

    Returns a file descriptor for the process that answers. Once nobody has it, the calls fail with ENOSYS.

    Raises OSError where the kernel has no such notifications, or another program has taken them.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"calls cannot be refused on {machine}")
    # It keeps Python's lock: no other thread may write under that lock before somebody answers.
    libc = ctypes.PyDLL(None, use_errno=True)
    code = _filter(machine)
    program = _Program(len(code) // 8, code)
    flags = ALL_THREADS | NEW_LISTENER | NO_THREAD_ERRORS
    libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call = ARCHITECTURES[machine][1]
    descriptor: int = libc.syscall(call, SET_MODE_FILTER, flags, ctypes.byref(program))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"calls cannot be refused here: {os.strerror(number)}")
    return descriptor


def _filter(machine: str) -> bytes:
    """Another architecture's numbers mean other calls: they are let through."""
    calls = [*WRITES[machine], *VECTORS[machine], *OPENS[machine], *CHANGES[machine]]
    tests = [(JUMP_IF_EQUAL, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    instructions = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 0, len(calls) + 1, ARCHITECTURES[machine][0]),
        (LOAD, 0, 0, NUMBER_AT),
        *tests,
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, NOTIFY),
    ]
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


class Disk:
    """What lies below the folder. `saves`: made before one is refused. `log`: a line for each file that was refused."""

    def __init__(self, folder: str, kind: str, saves: int, log: str) -> None:
        self._folder, self._kind, self._saves, self._log = folder, kind, saves, log
        self._written = 0
        self._room: float | None = None
        """Bytes that still fit; None while all do."""
        self._refused: set[str] = set()
        machine = platform.machine()
        self._writes, self._vectors = WRITES[machine], VECTORS[machine]
        self._targets, self._sources = TARGETS[machine], SOURCES[machine]
        self._opens, self._changes, self._moves = OPENS[machine], CHANGES[machine], MOVES[machine]
        self._beside: set[str] = set()
        """Folders of the same disk in which files are written that are moved below the folder later; with a slash at the end, whole folders are."""

    def hear(self, word: bytes) -> None:
        """Half of an average save still fits on a disk that is filling up."""
        if word == REFUSE:
            self._room = self._written / self._saves / 2 if self._saves else 0.0
        elif word == LET:
            self._room = None

    def error(self, thread: int, call: int, arguments: tuple[int, ...]) -> int:
        """0: the call is let through."""
        if call in self._writes or call in self._vectors:
            return self._write(thread, call, arguments)
        if self._kind != "unwritable":
            self._learn(thread, call, arguments)
            return 0
        if self._room is None:
            return 0
        if call in self._opens:
            folder, path, flags = self._opens[call]
            if not arguments[flags] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return 0
        else:
            folder, path = self._changes[call]
        target = _named(thread, arguments, folder, path)
        return self._refuse(target) if self._inside(target) else 0

    def _learn(self, thread: int, call: int, arguments: tuple[int, ...]) -> None:
        """Where the files of a save are written, if that is elsewhere. On another disk there is room."""
        if call not in self._moves or self._room is not None:
            return
        source = _named(thread, arguments, *self._moves[call])
        target = _named(thread, arguments, *self._changes[call])
        if self._inside(source) or not self._inside(target) or self._is_written(source):
            return
        with suppress(OSError):
            if os.stat(source).st_dev == os.stat(os.path.dirname(target)).st_dev:
                end = os.sep if os.path.isdir(source) else ""
                self._beside.add(os.path.dirname(source) + end)
                self._written += _size_below(source)

    def _is_written(self, path: str) -> bool:
        """Whether what is written to it is written by a save."""
        return self._inside(path) or any(
            path.startswith(one) if one.endswith(os.sep) else os.path.dirname(path) == one
            for one in self._beside
        )

    def _write(self, thread: int, call: int, arguments: tuple[int, ...]) -> int:
        if self._kind == "unwritable":
            return 0
        path = _link(f"/proc/{thread}/fd/{arguments[self._targets.get(call, 0)]}")
        if not self._is_written(path):
            return 0
        size = arguments[self._writes[call]] if call in self._writes else _sum(thread, *arguments[1:3])  # fmt: skip
        if call in self._sources:
            left = _size(thread, arguments[self._sources[call]]) - _size(thread, arguments[self._targets[call]])  # fmt: skip
            size = min(size, max(0, left))
        if self._room is None:
            self._written += size
            return 0
        if size <= self._room and self._room:
            self._room -= size
            return 0
        self._room = 0.0
        return self._refuse(path)

    def _refuse(self, path: str) -> int:
        if path not in self._refused:
            self._refused.add(path)
            with open(self._log, "a", encoding="utf-8") as file:
                file.write(json.dumps(os.path.relpath(path, self._folder)) + "\n")
        return ERRORS[self._kind]

    def _inside(self, path: str) -> bool:
        return path == self._folder or path.startswith(self._folder + os.sep)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # there is no such file, or the thread has ended: the kernel says it better
        return ""


def _size_below(path: str) -> int:
    """Of a file, or of all files in a folder."""
    if not os.path.isdir(path):
        return os.stat(path).st_size
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.stat(one).st_size for one in files)


def _size(thread: int, file: int) -> int:
    try:
        return os.stat(f"/proc/{thread}/fd/{file}").st_size
    except OSError:  # as for `_link`
        return 0


def _read(thread: int, address: int, size: int) -> bytes:
    """Of its memory; empty where that is not allowed."""
    try:
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)
    except (OSError, OverflowError):
        return b""


def _sum(thread: int, address: int, pieces: int) -> int:
    found = _read(thread, address, pieces * PIECE.size)
    return sum(length for _, length in PIECE.iter_unpack(found[: len(found) // PIECE.size * PIECE.size]))  # fmt: skip


def _named(
    thread: int, arguments: tuple[int, ...], folder: int | None, path: int
) -> str:  # fmt: skip
    """By the argument that is the folder, if there is one, and that of the path."""
    at = None if folder is None else ctypes.c_int(arguments[folder] & 0xFFFFFFFF).value
    return _path(thread, at, arguments[path])


def _path(thread: int, folder: int | None, address: int) -> str:
    to_page = LONGEST_PATH - address % LONGEST_PATH
    text = _read(thread, address, to_page)
    if b"\0" not in text:
        text += _read(thread, address + to_page, LONGEST_PATH)
    name = os.fsdecode(text.partition(b"\0")[0])
    if not name:
        return ""
    base = "" if name.startswith(os.sep) else _link(f"/proc/{thread}/{'cwd' if folder in (None, -100) else f'fd/{folder}'}")  # fmt: skip
    parent, last = os.path.split(os.path.normpath(os.path.join(base, name)))
    return os.path.join(os.path.realpath(parent), last)


def answer(own: socket.socket, disk: Disk) -> None:
    """Until the processes have ended. What the rank says comes before the calls that it makes then."""
    _, (descriptor,), _, _ = socket.recv_fds(own, 1, 1)
    own.setblocking(False)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not poll.poll()[0][1] & select.POLLHUP:
        call = bytearray(NOTIFICATION.size)
        # ENOENT: the caller has been killed meanwhile, or a signal has come and it calls again.
        with suppress(FileNotFoundError, InterruptedError):
            ioctl(descriptor, RECEIVE, call)
            _hear(own, disk)
            number, thread, _, name, _, _, *arguments = NOTIFICATION.unpack(call)
            error = disk.error(thread, name, tuple(arguments))
            ioctl(descriptor, SEND, ANSWER.pack(number, 0, -error, 0 if error else LET_RUN))


def _hear(own: socket.socket, disk: Disk) -> None:
    with suppress(BlockingIOError):
        while word := own.recv(1):
            disk.hear(word)


if __name__ == "__main__":
    answer(
        socket.socket(fileno=int(sys.argv[1])),
        Disk(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]),
    )
