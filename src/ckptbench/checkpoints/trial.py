"""A trial of a folder: all that a run does to files there, done once with small ones before the run begins.

A file system may refuse a call that others know, as fsync or the renaming of a folder. It would be found at the first save.
"""

from __future__ import annotations

import glob
import mmap
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckptbench.common.files import NO_DIRECT, fsync, open_direct
from ckptbench.common.remedies import cause, remedy
from ckptbench.common.removal import try_to_remove

CONTENT = bytes(range(256)) * (mmap.PAGESIZE // 256)


class Unfit(Exception):  # noqa: N818 (no user reads it: its caller knows the remedy)
    """A folder in which a run cannot work. The message names it, the call and the error."""

    def __init__(self, folder: Path, call: str, error: OSError) -> None:
        super().__init__(f"{folder} cannot be used: {call} fails there ({cause(error)})")
        self.folder = folder
        self.error = error

    def told(self, other: str) -> str:
        """What a user reads: the message, and what to do. `other` is what helps beside the remedy of the error."""
        # Without the error's own path: it is that of a file of the trial, which is gone.
        return f"{self}: {remedy(OSError(self.error.errno, cause(self.error)), self.folder, other)}"


def try_files(folder: Path) -> None:
    """Write, sync, replace, read and remove files in `folder`, which is made where it is missing. Raises Unfit."""
    with _room_in(folder) as room:
        _try_files(folder, room)


def try_versions(folder: Path) -> None:
    """Do what a store of checkpoints does in `folder`: the same, and sync and rename folders. Raises Unfit."""
    with _room_in(folder) as room:
        staging, final = room / "version.partial", room / "version"
        with _call(folder, "making a folder"):
            (staging / "inner").mkdir(parents=True)
        _try_files(folder, staging / "inner")
        for each in (staging / "inner", staging):
            with _call(folder, "fsync of a folder"):
                fsync(each)
        with _call(folder, "renaming a folder"):
            staging.rename(final)
        with _call(folder, "fsync of a folder"):
            fsync(room)
        with _call(folder, "listing a folder"):
            os.listdir(room)
        with _call(folder, "statvfs"):
            shutil.disk_usage(room)


@contextmanager
def _room_in(folder: Path) -> Iterator[Path]:
    """A new folder in `folder`, which is removed at the end."""
    of_host = f".trial-{socket.gethostname()}-"
    room = folder / f"{of_host}{os.getpid()}"
    with _call(folder, "making a folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"{glob.escape(of_host)}*"):
            pid = left.name.removeprefix(of_host)
            if left == room or not os.path.exists(f"/proc/{pid}"):  # its process was killed
                try_to_remove(left)
        room.mkdir()
    try:
        yield room
    except BaseException:
        try_to_remove(room)
        raise
    if error := try_to_remove(room):
        raise Unfit(folder, "removing files", error)


def _try_files(folder: Path, room: Path) -> None:
    old, new = room / "old", room / "new"
    for path in (old, new):
        with _call(folder, "writing a file"):
            path.write_bytes(CONTENT)
        with _call(folder, "fsync of a file"):
            fsync(path)
    with _call(folder, "replacing a file by another"):
        new.replace(old)
    with _call(folder, "a direct write"):
        _write_direct(old)
    with _call(folder, "mapping a file"):
        content = _mapped(old)
    if content != CONTENT:
        raise Unfit(
            folder, "reading a file", OSError("it gives back other bytes than were written")
        )


def _write_direct(path: Path) -> None:
    descriptor = open_direct(str(path))
    try:
        with mmap.mmap(-1, len(CONTENT)) as aligned:
            aligned.write(CONTENT)
            os.pwrite(descriptor, aligned, 0)
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_DIRECT:  # then a save writes as usual
            raise
    finally:
        os.close(descriptor)


def _mapped(path: Path) -> bytes:
    """The bytes of a file, read as libraries do that load checkpoints."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return bytes(mapped)


@contextmanager
def _call(folder: Path, call: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unfit(folder, call, error) from error
