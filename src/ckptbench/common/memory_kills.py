"""How a process has ended, in words, and whether the kernel has killed processes for lack of memory meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ckptbench.common.control_groups import SELF, memory_groups

HERE = "on this machine"
BUS_ERROR = (
    ", as the kernel does where there is no room for shared memory: enlarge /dev/shm (of a container: --shm-size), or free some "
    "space there"
)
"""What SIGBUS mostly means here."""
REMEDY = "use fewer ranks, a smaller model or batch_size, or give the job more memory"


@dataclass(frozen=True, slots=True)
class MemoryKills:
    """The kernel's counts of processes that it has killed for lack of memory, as they were at one moment."""

    counts: dict[str, int] = field(default_factory=dict)
    """By where they are counted, the nearest first: the control group of this process, those above it, the machine."""

    @classmethod
    def now(cls, process: Path = SELF) -> Self:
        """`process` is this process's folder in /proc."""
        counts: dict[str, int] = {}
        for where, path in _counters(process):
            with suppress(OSError, ValueError):
                rows = dict(line.split() for line in path.read_text(encoding="utf-8").splitlines())
                if "oom_kill" in rows:
                    counts[where] = int(rows["oom_kill"])
        return cls(counts)

    def since(self, before: Self) -> str:
        """The kills after `before`, in words: those of the nearest control group that counts some. Empty where there are none."""
        for where, count in self.counts.items():
            if (more := count - before.counts.get(where, count)) > 0:
                processes = "a process" if more == 1 else f"{more} processes"
                return f"the kernel has killed {processes} for lack of memory meanwhile ({where})"
        return ""


def ended(status: int, before: MemoryKills | None = None) -> str:
    """How a process has ended, in words, and where memory was the cause, what to do.

    `status` is as from `subprocess` and `multiprocessing`: negative for a signal. `before` are the kills when the process
    was started; None: not known.
    """
    now = MemoryKills.now()
    kills = "" if before is None else now.since(before)
    how = f"ended with exit status {status}"
    if status < 0:
        name = next((each.name for each in signal.Signals if each == -status), None)
        how = f"was killed by {name or f'signal {-status}'}"
    if kills:
        return f"{how}; {kills}: {REMEDY}"
    if -status != signal.SIGKILL:
        return f"{how}{BUS_ERROR}" if -status == signal.SIGBUS else how
    if before is not None and HERE in now.counts:  # it counts the kills of every control group
        return f"{how}, and not by the kernel for lack of memory"
    return f"{how}, as the kernel does when memory runs out"


def _counters(process: Path) -> Iterator[tuple[str, Path]]:
    """Each with where it counts."""
    for group in memory_groups(process):
        name = "memory.oom_control" if group.is_version_1 else "memory.events"
        yield f"control group {group.name}", group.folder / name
    yield HERE, process.parent / "vmstat"
