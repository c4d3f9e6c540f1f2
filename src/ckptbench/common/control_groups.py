"""The control groups that limit the memory of a process: its own and all above it, of both versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SELF = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A group as far as this process sees it."""

    folder: Path
    name: str
    """As in `/job/step`. A container sees its own group as `/`, whatever its name is outside."""
    is_version_1: bool


def memory_groups(process: Path = SELF) -> Iterator[ControlGroup]:
    """The groups of a process, the nearest first. `process` is its folder in /proc."""
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
            name = f"/{each}" if each.parts else "/"
            yield ControlGroup(Path(point) / each, name, kind == "cgroup")


def _named(text: str) -> Iterator[tuple[str, str]]:
    """The kind of a hierarchy that may limit memory, as mounts name it, and the process's group in it."""
    for line in text.splitlines():
        number, controllers, group = line.split(":", 2)
        if number == "0":
            yield "cgroup2", group
        elif "memory" in controllers.split(","):
            yield "cgroup", group
