"""The memory that this machine has left for this process: that of the machine, of its control groups, and of /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SELF = Path("/proc/self")
SHARED_MEMORY = Path("/dev/shm")
NO_LIMIT = 1 << 60
"""Version 1 writes no limit as a number near 2^63."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A control group as far as this process sees it."""

    folder: Path
    is_version_1: bool


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping; None if unknown.

    This is the kernel's estimate, or what is left of the limit of a control group, this process's own or one above it, if
    that is less.
    """
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    limits = [fields.get("MemAvailable"), control_group_headroom()]
    return min((limit for limit in limits if limit is not None), default=None)


def free_shared_memory() -> int | None:
    """Bytes that are free in /dev/shm, which a container may make small; None where there is none."""
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def control_group_headroom(process: Path = SELF) -> int | None:
    """Bytes left to a process in its control group and in all above it; None if none has a limit.

    `process` is its folder in /proc. A group above may have less left than the own one: it also counts other groups.
    """
    headrooms = map(_headroom, _memory_groups(process))
    return min((each for each in headrooms if each is not None), default=None)


def _headroom(group: _Group) -> int | None:
    limit_file, used_file = ("memory.max", "memory.current")
    cached_fields = ("active_file", "inactive_file")
    if group.is_version_1:
        limit_file, used_file = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        cached_fields = ("total_active_file", "total_inactive_file")
    try:
        limit = (group.folder / limit_file).read_text(encoding="utf-8").strip()
        if limit == "max" or int(limit) >= NO_LIMIT:
            return None
        used = int((group.folder / used_file).read_text(encoding="utf-8"))
        stat = (group.folder / "memory.stat").read_text(encoding="utf-8")
    except OSError:
        return None
    values: Mapping[str, str] = dict(line.split(" ", 1) for line in stat.splitlines())
    # The kernel gives up the page cache before it kills.
    cached = sum(int(values.get(field, 0)) for field in cached_fields)
    return max(0, int(limit) - max(0, used - cached))


def _memory_groups(process: Path) -> Iterator[_Group]:
    """The groups of a process that may limit its memory: its own and all above it, of both versions of control groups."""
    try:
        groups = dict(_named((process / "cgroup").read_text(encoding="utf-8")))
        mounts = (process / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, root, point, *_ = before.split()
        group = groups.get(kind)
        if group is None or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        # The group `root` of the hierarchy is mounted at `point`. In a container the own group may be that one.
        below = Path(group)
        inner = below.relative_to(root) if below.is_relative_to(root) else Path()
        for each in (inner, *inner.parents):
            yield _Group(Path(point) / each, kind == "cgroup")


def _named(text: str) -> Iterator[tuple[str, str]]:
    """The kind of a hierarchy that may limit memory, as mounts name it, and the process's group in it."""
    for line in text.splitlines():
        number, controllers, group = line.split(":", 2)
        if number == "0":
            yield "cgroup2", group
        elif "memory" in controllers.split(","):
            yield "cgroup", group
