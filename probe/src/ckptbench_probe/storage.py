"""What can be seen of files on a file system, and in which words."""

from __future__ import annotations

import os
import re
from pathlib import Path

MEMORY = "memory"
LEFT_NODE = "left this node"
WRITTEN_BACK = "written back"
CANNOT_SEE = "cannot see"
NOT_SEEN = "an object store: not seen"

_KINDS = {
    **dict.fromkeys(("tmpfs", "ramfs", "hugetlbfs"), MEMORY),
    **dict.fromkeys(("nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "gpfs", "beegfs", "9p", "virtiofs", "fuse"), LEFT_NODE),
    "overlay": CANNOT_SEE,
    NOT_SEEN: NOT_SEEN,
}  # fmt: skip
_URL = re.compile(r"[a-z][a-z0-9+.-]*(://|::).*", re.DOTALL | re.IGNORECASE)
"""As `s3://bucket/run`, `memory://run`, and fsspec's `simplecache::s3://bucket/run`."""
_LOCAL = re.compile(r"(?:file|local)://(?:localhost(?=/))?", re.IGNORECASE)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_url(path: str) -> bool:
    """Of what is no file of this machine."""
    return _URL.fullmatch(path) is not None and _LOCAL.match(path) is None


def place(path: str) -> str:
    """A URL as it is, but for one of a local file; else an absolute path."""
    return path if is_url(path) else os.path.abspath(_LOCAL.sub("", path, count=1))


def file_system(path: str, mounts: str | None = None) -> str:
    """Its type, as the kernel names it; `unknown` where it does not say. `mounts`: content of /proc/self/mountinfo."""
    if is_url(path):
        return NOT_SEEN
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return "unknown"
    real = os.path.realpath(path)
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind


def clean_means(file_system: str) -> str:
    """What it means there that no page is dirty."""
    if file_system.startswith("fuse."):
        return LEFT_NODE
    return _KINDS.get(file_system, WRITTEN_BACK)
