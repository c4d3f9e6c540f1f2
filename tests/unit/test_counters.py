"""The counters of the machine, read from a made-up /proc and from the real one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ckptbench.common.counters import IS_KERNEL_THREAD, Counters

TICKS = os.sysconf("SC_CLK_TCK")
STAT = "cpu  1000 200 300 5000 7 8 9 {stolen} 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5\n"


class Machine:
    """A folder that looks like /proc."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.proc.mkdir()
        self.write("stat", STAT.format(stolen=40))

    def write(self, name: str, text: str) -> None:
        path = self.proc / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)

    def process(self, pid: int, parent: int, ticks: int, waited: int = 0, flags: int = 0) -> None:
        numbers = f"S {parent} 1 1 0 -1 {flags} 0 0 0 0 {ticks} 0 {waited} 0 20 0 1 0"
        self.write(f"{pid}/stat", f"{pid} (a name) with) brackets) {numbers}\n")

    def now(self, process: int = 10) -> Counters:
        return Counters.now(process=process, proc=self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_time_of_a_run_is_that_of_its_tree_and_of_what_it_has_waited_for(
    machine: Machine,
) -> None:
    machine.process(1, 0, 500, waited=10_000)
    machine.process(10, 1, 20, waited=100)
    machine.process(11, 10, 30)
    machine.process(12, 11, 4, waited=6)
    machine.process(2, 0, 50, flags=IS_KERNEL_THREAD)
    machine.process(3, 2, 70, flags=IS_KERNEL_THREAD | 1)
    now = machine.now()
    assert now.own_s == pytest.approx(160 / TICKS)
    assert now.kernel_s == pytest.approx(120 / TICKS)
    assert now.busy_s == pytest.approx(1500 / TICKS)
    assert now.stolen_s == pytest.approx(40 / TICKS)
    assert now.cores == 2


def test_what_the_machine_does_not_tell_is_missing(machine: Machine) -> None:
    machine.write("stat", "cpu  1000 200 300 5000\ncpu0 1 1 1 1\n")
    now = machine.now()
    assert (now.own_s, now.kernel_s, now.stolen_s) == (None, None, None)


def test_processes_that_end_or_hide_meanwhile_are_left_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(10, 1, 20)
    for pid in (11, 12):
        machine.process(pid, 10, 1000)
    read = Path.read_text
    gone = {"11": PermissionError(), "12": ProcessLookupError()}

    def reading(path: Path, *args: str, **named: str) -> str:
        if path.parent.name in gone:
            raise gone[path.parent.name]
        return read(path, *args, **named)

    monkeypatch.setattr(Path, "read_text", reading)
    assert machine.now().own_s == pytest.approx(20 / TICKS)


def test_a_process_that_computes_is_found_on_this_machine() -> None:
    before = Counters.now()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    after = Counters.now()
    assert before.own_s is not None
    assert after.own_s is not None
    assert after.own_s - before.own_s >= 0.15
    assert after.busy_s > before.busy_s
