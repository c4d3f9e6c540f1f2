import signal
import threading

import pytest
from fakes import Logger

from snakemake_executor_plugin_submitit.interrupts import Interrupts, Lines


def test_ctrl_c_cancels_once_before_anybody_is_told():
    begun, go = threading.Event(), threading.Event()

    def cancel() -> None:
        begun.set()
        go.wait()

    interrupts = Interrupts(cancel)
    interrupts.watch()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert begun.wait(300)
    signal.raise_signal(signal.SIGINT)  # the second is not heard
    go.set()
    interrupts.over()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_handles_ctrl_c_itself_keeps_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupts = Interrupts(lambda: None)
        interrupts.watch()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        interrupts.over()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_line_that_nobody_reads_stops_nothing(monkeypatch: pytest.MonkeyPatch):
    logger = Logger()
    lines = Lines(logger)  # type: ignore[arg-type]
    lines.info("one")
    assert lines.lines == ["one"]

    def nobody(line: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(logger, "info", nobody)
    monkeypatch.setattr(logger, "warning", nobody)
    lines.info("two")
    lines.warning("three")
