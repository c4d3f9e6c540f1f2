"""The block device under a folder, and what the kernel has counted of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SYSTEM, MOUNTS = Path("/sys"), Path("/proc/self/mountinfo")
FLUSHES = 15
"""Place of the completed flushes among the numbers of a device's `stat`, since Linux 5.5 (Documentation/block/stat.rst)."""


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A whole device, as a disk. Partitions have no counter of flushes."""

    folder: Path
    """Its folder in /sys."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def flushes(self) -> int | None:
        """Flushes that it has completed so far; None if the kernel does not count them."""
        fields = (self.folder / "stat").read_text(encoding="ascii").split()
        return int(fields[FLUSHES]) if len(fields) > FLUSHES else None

    @property
    def caches_writes(self) -> bool | None:
        """Whether it says that it has a volatile cache, which a flush empties. None if it does not say."""
        try:
            text = (self.folder / "queue" / "write_cache").read_text(encoding="ascii").strip()
        except OSError:
            return None
        return text == "write back"


def device_of(folder: Path, *, system: Path = SYSTEM) -> BlockDevice | None:
    """The device that holds `folder`; None where no block device of this machine does: on tmpfs, or a network file system."""
    number = os.stat(folder).st_dev
    major, minor = os.major(number), os.minor(number)
    found = _in_system(system, major, minor)
    if found is None:  # file systems such as btrfs have numbers of their own
        source = _source(f"{major}:{minor}")
        if source is not None and source.is_block_device():
            real = os.stat(source).st_rdev
            found = _in_system(system, os.major(real), os.minor(real))
    return found


def _in_system(system: Path, major: int, minor: int) -> BlockDevice | None:
    link = system / "dev" / "block" / f"{major}:{minor}"
    if not link.exists():
        return None
    folder = link.resolve()
    return BlockDevice(folder.parent if (folder / "partition").exists() else folder)


def _source(number: str) -> Path | None:
    """What is mounted with this number: the second field behind the dash (proc(5))."""
    for line in MOUNTS.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields[2] == number and "-" in fields:
            return Path(fields[fields.index("-") + 2])
    return None
