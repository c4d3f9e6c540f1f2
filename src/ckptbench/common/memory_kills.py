"""How a process has ended, in words, and whether the kernel has killed processes for lack of memory meanwhile."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

VMSTAT = Path("/proc/vmstat")
REMEDY = "use fewer ranks, a smaller model or batch_size, or give the job more memory"


@dataclass(frozen=True, slots=True)
class MemoryKills:
    """The kernel's count of processes that it has killed for lack of memory, as it was at one moment."""

    count: int | None = None
    """On this machine, in all control groups. None: the kernel does not say."""

    @classmethod
    def now(cls) -> Self:
        with suppress(OSError, ValueError, KeyError):
            rows = dict(line.split() for line in VMSTAT.read_text(encoding="utf-8").splitlines())
            return cls(int(rows["oom_kill"]))
        return cls()

    def since(self, before: Self) -> str:
        """The kills after `before`, in words. Empty where there are none."""
        if self.count is None or before.count is None or self.count <= before.count:
            return ""
        return "the kernel has killed processes for lack of memory meanwhile (on this machine)"


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
        return how
    if before is not None and now.count is not None:
        return f"{how}, and not by the kernel for lack of memory"
    return f"{how}, as the kernel does when memory runs out"
