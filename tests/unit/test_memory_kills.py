"""How a process has ended is told with the kernel's own count of kills for lack of memory, and with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptbench.common import memory_kills
from ckptbench.common.memory_kills import REMEDY, MemoryKills, ended

BEFORE = MemoryKills(3)
KILLED = "the kernel has killed processes for lack of memory meanwhile (on this machine)"


def test_the_kills_are_those_that_the_kernel_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vmstat = tmp_path / "vmstat"
    monkeypatch.setattr(memory_kills, "VMSTAT", vmstat)
    assert MemoryKills.now() == MemoryKills(), "there is no such file"
    for text, count in (("low 0\noom_kill 5\n", 5), ("low 0\n", None), ("oom_kill many\n", None)):
        vmstat.write_text(text)
        assert MemoryKills.now().count == count


def test_kills_of_before_do_not_count() -> None:
    assert MemoryKills(4).since(BEFORE) == KILLED
    assert MemoryKills(3).since(BEFORE) == MemoryKills().since(BEFORE) == ""
    assert BEFORE.since(MemoryKills()) == ""


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
    counted = MemoryKills(now)
    monkeypatch.setattr(memory_kills.MemoryKills, "now", classmethod(lambda cls: counted))
    assert ended(status, before) == words
