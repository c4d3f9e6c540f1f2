"""What Linux has counted of this machine so far: CPU time, and who used it.

Two samples tell what happened between them. A number that the kernel or a container does not give is missing (None).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
STOLEN = 7
"""Place of the stolen time among the numbers of /proc/stat; older kernels have fewer numbers (proc(5))."""
IS_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel's include/linux/sched.h, in the flags of /proc/<process>/stat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """One sample. Times are in seconds and grow; those of CPU are summed over all cores."""

    cores: int
    """Cores that are online."""
    busy_s: float
    """CPU time of all processes and kernel threads. The time of interrupts is not in it."""
    own_s: float | None
    """CPU time of this process and of all that it has started. A process whose parent ended first is not counted any more."""
    kernel_s: float | None
    """CPU time of the kernel's threads, such as those that write pages back. None in a container that hides them."""
    stolen_s: float | None
    """Time in which a core of this virtual machine was ready to run, and the host did not let it."""

    @classmethod
    def now(cls, *, process: int | None = None, proc: Path = PROC) -> Counters:
        """`process` is the one that counts as this one. Raises OSError without /proc/stat."""
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        lines = (proc / "stat").read_text(encoding="ascii").splitlines()
        ticks = [int(number) for number in lines[0].split()[1:]]
        used = _processes(proc)
        kernel = [each.own for each in used.values() if each.is_kernel]
        return cls(
            cores=sum(re.match(r"cpu\d", line) is not None for line in lines),
            busy_s=sum(ticks[:3]) * tick_s,
            own_s=_of_tree(used, os.getpid() if process is None else process, tick_s),
            kernel_s=sum(kernel) * tick_s if kernel else None,
            stolen_s=ticks[STOLEN] * tick_s if len(ticks) > STOLEN else None,
        )


def shares(samples: Sequence[tuple[object, object]], allowed_s: float) -> dict[str, float]:
    """Who used which share of the CPU time: `busy`, `own`, `kernel`, `stolen`, and `others`, which is the rest of `busy`.

    `samples` are pairs of begin and end, Counters or what a trace has noted of them; `allowed_s` is the time of all cores between them. A share that is unknown is NaN.
    """
    found = {
        name: sum(grown(*(getattr(each, f"{name}_s") for each in pair)) for pair in samples)
        / allowed_s
        for name in ("busy", "own", "kernel", "stolen")
    }
    kernel = 0.0 if math.isnan(found["kernel"]) else found["kernel"]
    # Linux counts the machine's time by ticks and that of a process exactly, so the rest may come out below zero.
    others = found["busy"] - found["own"] - kernel
    return {**found, "others": others if math.isnan(others) else max(0.0, others)}


def grown(begin: float | None, end: float | None) -> float:
    """NaN where it is unknown, and where a counter went back, as that of stolen time can when a machine moves."""
    return math.nan if begin is None or end is None or end < begin else end - begin


@dataclass(frozen=True, slots=True)
class _Used:
    """CPU time of one process, in ticks."""

    parent: int
    is_kernel: bool
    own: int
    waited_for: int
    """Of the processes that it has started, that have ended, and that it has waited for."""


def _processes(proc: Path) -> dict[int, _Used]:
    found = {}
    for folder in proc.glob("[0-9]*"):
        # It has just ended, or this user may not see it.
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            # The name of the command is in brackets, and may hold brackets and spaces.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            user, kernel, of_children, kernel_of_children = map(int, fields[11:15])
            found[int(folder.name)] = _Used(
                parent=int(fields[1]),
                is_kernel=bool(int(fields[6]) & IS_KERNEL_THREAD),
                own=user + kernel,
                waited_for=of_children + kernel_of_children,
            )
    return found


def _of_tree(used: Mapping[int, _Used], root: int, tick_s: float) -> float | None:
    """CPU time of a process and of all below it, in seconds."""
    if root not in used:
        return None
    children: dict[int, list[int]] = {}
    for process, each in used.items():
        children.setdefault(each.parent, []).append(process)
    ticks, ahead = 0, [root]
    while ahead:
        process = ahead.pop()
        ticks += used[process].own + used[process].waited_for
        ahead += children.get(process, [])
    return ticks * tick_s
