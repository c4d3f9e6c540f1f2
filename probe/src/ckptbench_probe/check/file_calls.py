"""What a training does to files, call by call, with all bytes that it writes: recorded by strace, which sees C++ and Rust too."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

CALLS = (
    "open", "openat", "creat", "close", "write", "pwrite64", "writev", "pwritev", "pwritev2", "lseek", "sendfile", "copy_file_range", "dup", "dup2", "dup3", "fcntl",
    "truncate", "ftruncate", "fallocate", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir",
    "fsync", "fdatasync", "syncfs", "sync", "mmap", "msync", "chdir", "access",
)  # fmt: skip
MOST_BYTES = 400_000_000
"""Of one call: strace's own limit is above it."""
OPTIONS = ("-D", "-f", "--seccomp-bpf", "-q", "-y", "-v", "-xx", "-s", str(MOST_BYTES), "-ttt", "-e", "signal=none", "-e", f"trace={','.join(CALLS)}")  # fmt: skip
SHORT = 65_536
"""Texts of up to so many bytes are kept in memory."""
_BEGIN = re.compile(rb"(\d+) +(\d+\.\d+) (?:(\w+)\(|<\.\.\. (\w+) resumed>)")
_UNFINISHED = b"<unfinished ...>"
_FILE = re.compile(r"(?<![\w.])(AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")
_RESULT = re.compile(r"\) += (-?\d+|0x[0-9a-f]+)[^=]*$")


@dataclass(frozen=True)
class Text:
    """Bytes that strace has written into its log."""

    at: int
    """Where they begin in the log, four characters a byte."""
    size: int
    known: bytes | None

    def read(self, log: BinaryIO) -> bytes:
        if self.known is not None:
            return self.known
        log.seek(self.at)
        return _plain(log.read(4 * self.size))


@dataclass(frozen=True)
class File:
    """A descriptor, and the path that it had at the time of the call."""

    number: str
    path: str
    removed: bool


@dataclass(frozen=True)
class Call:
    """One that did not fail."""

    process: str
    name: str
    words: str
    """Without its texts."""
    texts: tuple[Text, ...]
    result: int
    entered: int
    """Place in the order of the log's lines."""
    returned: int
    at_ns: int

    @property
    def files(self) -> list[File]:
        return [File(n, _path(path), bool(gone)) for n, path, gone in _FILE.findall(self.words)]

    def path(self, index: int) -> str:
        """Of the texts, as the program wrote it."""
        return (self.texts[index].known or b"").decode(errors="surrogateescape")


def around(command: list[str], log: Path) -> list[str]:
    return ["strace", *OPTIONS, "-o", str(log), "--", "sh", "-c", 'exec "$0" "$@"', *command]


def calls(log: Path) -> Iterator[Call]:
    """In the order in which they returned."""
    begun: dict[tuple[str, str], tuple[int, list[str], list[Text]]] = {}
    position = 0
    with log.open("rb") as lines:
        for number, line in enumerate(lines):
            at, position = position, position + len(line)
            found = _BEGIN.match(line)
            if found is None or not line.endswith(b"\n"):
                continue
            process, name = found[1].decode(), (found[3] or found[4]).decode()
            words, texts = _split(line, at)
            if found[4]:
                entered, before, earlier = begun.pop((process, name), (number, [], []))
                words[0] = words[0].partition(" resumed>")[2]
                words, texts = [*before, *words], [*earlier, *texts]
            else:
                entered = number
            if line.rstrip().endswith(_UNFINISHED):
                words[-1] = words[-1].rstrip()[: -len(_UNFINISHED)].rstrip()
                begun[process, name] = entered, words, texts
                continue
            whole = "".join(words)
            result = _RESULT.search(whole)
            if result is not None and int(result[1], 0) >= 0:
                at_ns = round(float(found[2]) * 1e9)
                yield Call(process, name, whole, tuple(texts), int(result[1], 0), entered, number, at_ns)  # fmt: skip
            elif name == "access":
                yield Call(process, name, whole, tuple(texts), -1, entered, number, 0)


def _split(line: bytes, at: int) -> tuple[list[str], list[Text]]:
    """What is outside of quotes, which no text of hexadecimal digits can have within, and the texts."""
    words: list[str] = []
    texts: list[Text] = []
    for number, piece in enumerate(line.split(b'"')):
        if number % 2:
            size = len(piece) // 4
            texts.append(Text(at, size, _plain(piece) if size <= SHORT else None))
        else:
            words.append(piece.decode(errors="surrogateescape"))
        at += len(piece) + 1
    return words, texts


def _plain(escaped: bytes) -> bytes:
    return binascii.unhexlify(escaped.translate(None, b"\\x"))


def _path(escaped: str) -> str:
    return _plain(escaped.encode()).decode(errors="surrogateescape")
