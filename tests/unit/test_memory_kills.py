"""How a process has ended is told with the kernel's own count of kills for lack of memory, and with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptbench.common import memory_kills
from ckptbench.common.memory_kills import HERE, REMEDY, MemoryKills, ended

V2 = "0::/job/step\n"
V1 = "5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n"


def machine(root: Path, groups: str, counters: dict[str, int]) -> Path:
    """A process' folder on a machine with these control groups, and the kills that the files below `root` count."""
    mount = f"31 22 0:28 / {root / 'sys/fs/cgroup'}"
    mounts = f"{mount} rw - cgroup2 c rw\n{mount}/memory rw - cgroup c rw,memory\n"
    files = {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts} | {
        name: f"low 0\noom_kill {count}\nmax 3\n" for name, count in counters.items()
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "proc/self"


@pytest.mark.parametrize(
    ("groups", "counter", "where"),
    [
        (V2, "sys/fs/cgroup/job/step/memory.events", "control group /job/step"),
        (V2, "sys/fs/cgroup/job/memory.events", "control group /job"),
        (V2, "sys/fs/cgroup/memory.events", "control group /"),
        (V1, "sys/fs/cgroup/memory/job/memory.oom_control", "control group /job"),
        (V1, "sys/fs/cgroup/memory/memory.oom_control", "control group /"),
        (V1, "proc/vmstat", HERE),
        ("", "proc/vmstat", HERE),
    ],
)
def test_the_nearest_group_that_counts_a_kill_is_named(
    tmp_path: Path, groups: str, counter: str, where: str
) -> None:
    every = {"proc/vmstat": 5, counter: 2}
    before = MemoryKills.now(machine(tmp_path, groups, every))
    assert before.since(before) == ""
    after = MemoryKills.now(machine(tmp_path, groups, {"proc/vmstat": 7, counter: 4}))
    said = after.since(before)
    assert said == f"the kernel has killed 2 processes for lack of memory meanwhile ({where})"


def test_a_group_that_came_later_counts_no_kill_of_before(tmp_path: Path) -> None:
    before = MemoryKills.now(machine(tmp_path, V2, {"proc/vmstat": 1}))
    late = {"proc/vmstat": 1, "sys/fs/cgroup/job/memory.events": 9}
    assert MemoryKills.now(machine(tmp_path, V2, late)).since(before) == ""


def test_a_machine_that_counts_nothing_is_no_error(tmp_path: Path) -> None:
    assert MemoryKills.now(tmp_path / "proc/self").counts == {}
    machine(tmp_path, "0::/../..\n", {})
    (tmp_path / "proc/vmstat").write_text("oom_kill many\n")
    assert MemoryKills.now(tmp_path / "proc/self").counts == {}


BEFORE = MemoryKills({HERE: 3})
KILLED = "the kernel has killed a process for lack of memory meanwhile (on this machine)"


@pytest.mark.parametrize(
    ("status", "before", "now", "words"),
    [
        (3, BEFORE, 3, "ended with exit status 3"),
        (-15, BEFORE, 3, "was killed by SIGTERM"),
        (-63, BEFORE, 3, "was killed by signal 63"),
        (-9, BEFORE, 3, "was killed by SIGKILL, and not by the kernel for lack of memory"),
        (-9, BEFORE, 4, f"was killed by SIGKILL; {KILLED}: {REMEDY}"),
        # What starts ranks ends with a status of its own when one of them is killed.
        (137, BEFORE, 4, f"ended with exit status 137; {KILLED}: {REMEDY}"),
        (-9, None, 3, "was killed by SIGKILL, as the kernel does when memory runs out"),
        (-9, MemoryKills(), None, "was killed by SIGKILL, as the kernel does when memory runs out"),
    ],
)
def test_the_end_of_a_process_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    before: MemoryKills | None,
    now: int | None,
    words: str,
) -> None:
    counted = MemoryKills({} if now is None else {HERE: now})
    monkeypatch.setattr(memory_kills.MemoryKills, "now", classmethod(lambda cls: counted))
    assert ended(status, before) == words
