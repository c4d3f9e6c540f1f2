"""The lock of an environment: a file that lists its packages, each with one version and the hashes of its files."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
OWN = "{}.{}".format(*sys.version_info)
_PYTHON = re.compile(r"^# python: (\d+\.\d+)$", re.MULTILINE)


def read_lock(lock: Path) -> dict[str, str]:
    """The packages of `lock` by name. The value is the line that uv reads, without the breaks that make it several. A package that is
    another one with another Python has two.
    """
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    packages: dict[str, str] = {}
    for line in lines:
        if name := _NAME.match(line):
            earlier = packages.get(name[0])
            packages[name[0]] = line if earlier is None else f"{earlier}\n{line}"
    return packages


def version_in(line: str) -> str | None:
    """The version in a line of `read_lock`. None: the line names a file."""
    found = re.match(r"[^\s=]+==([^\s;]+)", line)
    return found[1] if found else None


def python_of(lock: Path, other: str = OWN) -> str:
    """The version of Python for which the lock was made, such as `3.12`. A lock that names none is for the running one, or the `other`."""
    found = _PYTHON.search(lock.read_text(encoding="utf-8"))
    return found[1] if found else other


def pinned(lock: Path) -> str:
    """The lock without the hashes of its packages, a package a line: which packages, in which versions."""
    return _pinned(lock.read_text(encoding="utf-8"))


def pinned_sha256(lock: Path) -> str:
    """SHA-256 of `pinned`: equal for locks that make the same environment."""
    return pinned_sha256_of(lock.read_text(encoding="utf-8"))


def pinned_sha256_of(text: str) -> str:
    """The same of the text of a lock."""
    return hashlib.sha256(_pinned(text).encode()).hexdigest()


def _pinned(text: str) -> str:
    kept = (line for line in text.splitlines() if not line.lstrip().startswith(("--hash=", "#")))
    return "".join(line.removesuffix("\\").rstrip() + "\n" for line in kept)
