"""Durations are those of the monotonic clock; the time of day is that clock and an offset."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ckptbench.common.clock import Instant, day_ns

HOUR_NS = 3600 * 10**9


def test_an_instant_is_read_as_it_was_written() -> None:
    now = Instant.now()
    assert Instant.read(str(now)) == now
    with pytest.raises(ValueError, match="unpack"):
        Instant.read("boot 1")


def test_the_time_of_day_is_the_monotonic_clock_and_an_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_ns = time.time_ns
    before = Instant.now()
    assert abs(before.day_ns - real_ns()) < HOUR_NS
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() - HOUR_NS)
    after = Instant.now()
    assert after.day_ns - before.day_ns == after.monotonic_ns - before.monotonic_ns
    assert before.seconds_to(after) == (after.monotonic_ns - before.monotonic_ns) / 1e9


def test_processes_of_a_host_share_the_time_of_day() -> None:
    """Each reads the wall clock itself. What one does after another comes after it in the traces, too."""
    code = "from ckptbench.common.clock import Instant; print(Instant.now())"
    before_ns = day_ns()
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert before_ns < Instant.read(done.stdout).day_ns < day_ns()


def test_between_two_boots_the_time_of_day_tells() -> None:
    early = Instant(boot="one", monotonic_ns=10**12, day_ns=10**18)
    late = Instant(boot="two", monotonic_ns=5, day_ns=10**18 + 2 * 10**9)
    assert early.seconds_to(late) == 2.0
