"""In CI a skipped test is a failure: a part that was not tried is not known to work."""

from __future__ import annotations

import os
import signal

import pytest

# Tests run more ranks than there are cores: a thread that waits must not keep a core from another.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2^4 turns, not 2^26

# Some tests press Ctrl-C. What a shell starts in the background would hand on that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A test that failed and then passed has a race in it, or what it tests has: say how it failed."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"{report.nodeid} was run again", sep="_")
        terminalreporter.write_line(report.longreprtext)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    if os.environ.get("CI") and skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
