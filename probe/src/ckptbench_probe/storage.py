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
UPLOADED = "uploaded"
"""All objects that were seen are in their store."""

_KINDS = {
    **dict.fromkeys(("tmpfs", "ramfs", "hugetlbfs"), MEMORY),
    **dict.fromkeys(("nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "gpfs", "beegfs", "9p", "virtiofs", "fuse"), LEFT_NODE),
    "overlay": CANNOT_SEE,
}  # fmt: skip
_URL = re.compile(r"[a-z][a-z0-9+.-]*(://|::).*", re.DOTALL | re.IGNORECASE)
"""As `s3://bucket/run`, `memory://run`, and fsspec's `simplecache::s3://bucket/run`."""
_LOCAL = re.compile(r"(?:file|local)://(?:localhost(?=/))?", re.IGNORECASE)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_url(path: str) -> bool:
    """Of what is no file of this machine."""
    return _URL.fullmatch(path) is not None and _LOCAL.match(path) is None


def place(path: str) -> str:
    """A URL by the usual name of its scheme; of one of a local file, and of all else, an absolute path."""
    if not is_url(path):
        return os.path.abspath(_LOCAL.sub("", path, count=1))
    kind, mark, rest = path.partition("://")
    return _ALIASES.get(kind, kind) + mark + rest.strip("/") if mark else path


def scheme(url: str) -> str:
    """As `s3`; of `simplecache::s3://bucket` too."""
    return url.partition("://")[0].rpartition("::")[2]


def is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def file_system(path: str, mounts: str | None = None) -> str:
    """Its type, as the kernel names it; `unknown` where it does not say; of a URL, its scheme. `mounts`: content of /proc/self/mountinfo."""
    if is_url(path):
        return scheme(path)
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
