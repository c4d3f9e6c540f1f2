"""Records syncs by `strace`, which sees those that C++ and Rust call too.

It traces from beside: the command stays the launcher's own child, and gets its signals and ends as without it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CALLS = ("fsync", "fdatasync", "syncfs", "sync_file_range")
LONGEST_CHECK_S = 10.0
LONGEST_WAIT_S = 5.0
"""For the last lines, after the command has ended."""
_OPTIONS = ("-f", "--seccomp-bpf", "-q", "-y", "-ttt", "-e", "signal=none", "-e", f"trace={','.join(CALLS)}")  # fmt: skip
_LINE = re.compile(r"(?P<pid>\d+) +(?P<at>\d+\.\d+) (?P<call>\w+|\+\+\+)(?:\(\d+<(?P<path>[^>]*)>)?.*?(?P<failed>= -1 .*)?")  # fmt: skip
_ESCAPED = re.compile(rb"\\(?:([0-7]{1,3})|(.))")
_LETTERS = {b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


def obstacle() -> str | None:
    """Why no program can be traced here."""
    program = shutil.which("strace")
    if program is None:
        return "strace is not installed"
    words = [program, "-D", *_OPTIONS, "-o", os.devnull, "--", "true"]
    try:
        tried = subprocess.run(
            words, capture_output=True, text=True, timeout=LONGEST_CHECK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "strace does not end"
    if tried.returncode == 0:
        return None
    return (tried.stderr.strip().splitlines() or ["strace fails"])[-1]


class StraceRecorder:
    """Has strace record the syncs of one command in a file of the folder."""

    def __init__(self, folder: Path, run: str) -> None:
        self.file = folder / f"strace-{run}-{socket.gethostname()}-{os.getpid()}.txt"

    def around(self, command: list[str]) -> list[str]:
        """`sh` starts programs as the launcher does: also scripts without a first line that names their shell."""
        start = ["sh", "-c", 'exec "$0" "$@"', *command]
        return ["strace", "-D", *_OPTIONS, "-o", str(self.file), "--", *start]

    def wait(self, pid: int) -> None:
        """Until the end of this process is in the file."""
        until = time.monotonic() + LONGEST_WAIT_S
        while not self._has_end_of(pid) and time.monotonic() < until:
            time.sleep(0.02)

    def _has_end_of(self, pid: int) -> bool:
        try:
            return any(line.pid == pid and line.call == "+++" for line in _lines(self.file))
        except OSError:
            return False


@dataclass(frozen=True)
class Line:
    pid: int
    at_ns: int
    """Of the time of day."""
    call: str
    """`+++`: the process or thread ends."""
    path: str


def _lines(file: Path) -> Iterator[Line]:
    """Calls that did not fail at once, and ends."""
    with file.open(encoding="utf-8", errors="surrogateescape") as lines:
        for text in lines:
            found = _LINE.fullmatch(text.rstrip("\n"))
            if found is None or found["failed"]:
                continue
            path = _ESCAPED.sub(_byte, os.fsencode(found["path"] or ""))
            at_ns = round(float(found["at"]) * 1e9)
            yield Line(int(found["pid"]), at_ns, found["call"], os.fsdecode(path))


def _byte(escaped: re.Match[bytes]) -> bytes:
    """Of what strace has escaped."""
    octal, letter = escaped.groups()
    return bytes([int(octal, 8)]) if octal else _LETTERS.get(letter, letter)


def seen(folder: Path, run: str) -> tuple[set[tuple[str, int]], list[Line]]:
    """The processes that were traced, each by its host and id, and their calls on files."""
    processes: set[tuple[str, int]] = set()
    calls: list[Line] = []
    for file in sorted(folder.glob(f"strace-{run}-*.txt")):
        host = file.stem[len(f"strace-{run}-") :].rpartition("-")[0]
        lines = list(_lines(file))
        processes |= {(host, line.pid) for line in lines}
        calls += [line for line in lines if line.path.startswith("/")]
    return processes, calls
