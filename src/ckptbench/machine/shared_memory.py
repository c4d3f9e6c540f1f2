"""Shared memory that outlives its processes: segments have names in /dev/shm, and only these keep them after a kill."""

from __future__ import annotations

from pathlib import Path

SEGMENTS = Path("/dev/shm")
_DELETED = " (deleted)"
"""The kernel's mark behind the path of a mapped file that has no name any more."""


def forget_names(prefix: str) -> list[Path]:
    """Remove the names of the segments that this process has mapped and whose names begin with `prefix`.

    A segment without a name serves the processes that have mapped it as before, and the kernel frees it when the last
    of them has ended, however it ends. Call it when every process that needs a segment has mapped it: none can find it
    afterwards. Returns the paths that are gone. Another process may have removed one at the same time.
    """
    paths = _mapped(prefix)
    for path in paths:
        path.unlink(missing_ok=True)
    return paths


def _mapped(prefix: str) -> list[Path]:
    """Sorted paths of the mapped segments that still have their names."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    # Address, permissions, offset, device, inode, path. Anonymous memory has no path.
    found = {fields[5] for line in lines.splitlines() if len(fields := line.split(maxsplit=5)) == 6}
    return sorted(
        Path(path)
        for path in found
        if path.startswith(f"{SEGMENTS}/{prefix}") and not path.endswith(_DELETED)
    )
