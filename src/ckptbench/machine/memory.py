"""The memory that this machine has left for this process: that of the machine, of its control groups, and of /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
NO_LIMIT = 1 << 60
"""Version 1 writes no limit as a number near 2^63."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a control group that say how much memory it may use and uses."""

    limit: str
    used: str
    cached: tuple[str, ...]
    """Fields of `memory.stat` with the page cache, which the kernel gives up before it kills."""


_VERSION_1 = _Files(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")
)
_VERSION_2 = _Files("memory.max", "memory.current", ("active_file", "inactive_file"))


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping; None if unknown.

    This is the kernel's estimate, or what is left of the limit of a control group, this process's own or one above it, if
    that is less.
    """
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    limits = [fields.get("MemAvailable"), control_group_headroom(Path("/proc/self"))]
    return min((limit for limit in limits if limit is not None), default=None)


def free_shared_memory() -> int | None:
    """Bytes that are free in /dev/shm, which a container may make small; None where there is none."""
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def control_group_headroom(process: Path) -> int | None:
    """Bytes left to a process in its control group and in all above it, of both versions; None if none has a limit.

    `process` is its folder in /proc. A group above may have less left than the own one: it also counts other groups.
    """
    return min(_headrooms(process), default=None)


def _headrooms(process: Path) -> Iterator[int]:
    try:
        groups = dict(_memory_groups((process / "cgroup").read_text(encoding="utf-8")))
        mounts = (process / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, root, point, *_ = before.split()
        files = {"cgroup": _VERSION_1, "cgroup2": _VERSION_2}.get(kind)
        group = groups.get(kind)
        if files is None or group is None:
            continue
        if files is _VERSION_1 and "memory" not in options.split(","):
            continue
        for folder in _with_parents(Path(point), root, group):
            headroom = _headroom(folder, files)
            if headroom is not None:
                yield headroom


def _memory_groups(text: str) -> Iterator[tuple[str, str]]:
    """The kind of a hierarchy that may limit memory, as mounts name it, and this process's group in it."""
    for line in text.splitlines():
        number, controllers, group = line.split(":", 2)
        if number == "0":
            yield "cgroup2", group
        elif "memory" in controllers.split(","):
            yield "cgroup", group


def _with_parents(point: Path, root: str, group: str) -> Iterator[Path]:
    """The folder of a group and those of all groups above it, as far as they are visible.

    The group `root` of the hierarchy is mounted at `point`. In a container the own group may be that one.
    """
    below = Path(group)
    inner = below.relative_to(root) if below.is_relative_to(root) else Path()
    folder = point / inner
    yield folder
    for _ in inner.parts:
        folder = folder.parent
        yield folder


def _headroom(group: Path, files: _Files) -> int | None:
    try:
        limit = (group / files.limit).read_text(encoding="utf-8").strip()
        if limit == "max" or int(limit) >= NO_LIMIT:
            return None
        used = int((group / files.used).read_text(encoding="utf-8"))
        cached = _cached((group / "memory.stat").read_text(encoding="utf-8"), files.cached)
    except OSError:
        return None
    return max(0, int(limit) - max(0, used - cached))


def _cached(stat: str, fields: tuple[str, ...]) -> int:
    values: Mapping[str, str] = dict(line.split(" ", 1) for line in stat.splitlines())
    return sum(int(values.get(field, 0)) for field in fields)
