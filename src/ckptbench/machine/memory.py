"""The memory that this machine has left."""

from __future__ import annotations

from pathlib import Path


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping; None if unknown.

    This is the kernel's estimate, or what is left of the control group's limit if that is less.
    """
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    limits = [fields.get("MemAvailable"), _control_group_headroom()]
    return min((limit for limit in limits if limit is not None), default=None)


def _control_group_headroom() -> int | None:
    """Bytes left in this process's control group (version 2); None if it has no limit."""
    group = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("::")[2].strip()
    folder = Path("/sys/fs/cgroup") / group.lstrip("/")
    try:
        limit = (folder / "memory.max").read_text(encoding="utf-8").strip()
        used = int((folder / "memory.current").read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if limit == "max" else int(limit) - used
