"""Work in a process of its own, which is ended with all that it has started when nobody waits for it any more.

Making an environment starts installers, and these start compilers. A workflow that is killed ends none of them. So the
work is done by a worker, which leads a session, and this process supervises it: it ends the whole session when the
workflow is gone, or when it is itself told to end. If this process is killed, the worker gets a signal from the kernel and
ends its session itself.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from ckptbench.common.processes import die_with_parent, is_orphan

log = logging.getLogger("ckptbench")

POLL_SECONDS = 0.2
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def supervised(work: Callable[[], int], parent: int) -> int:
    """Call `work` in a worker and return its exit status, or 1 when this process has lost its parent `parent`.

    Call it in a process with one thread.
    """
    if is_orphan(parent):
        return _abandoned()
    supervisor = os.getpid()
    worker = os.fork()
    if worker == 0:
        os._exit(_status_of(work, supervisor))
    with _raising_end_signals():
        try:
            while not _has_ended(worker):
                if is_orphan(parent):
                    return _abandoned()
                time.sleep(POLL_SECONDS)
        finally:
            status = _end(worker)
    return status


def _abandoned() -> int:
    log.error("the workflow that started this process is gone: its work is ended")
    return 1


def _status_of(work: Callable[[], int], supervisor: int) -> int:
    os.setsid()
    signal.signal(signal.SIGTERM, _end_session)
    die_with_parent(supervisor, by=signal.SIGTERM)
    try:
        return work()
    except BaseException:  # noqa: BLE001 (this process is forked: nothing else would print it)
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _end_session(_: int, __: FrameType | None) -> None:
    os.killpg(0, signal.SIGKILL)


def _has_ended(worker: int) -> bool:
    """Whether it has ended. Its exit status stays to be asked for."""
    return os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(worker: int) -> int:
    """End the worker's session, of which something may be left even if the worker has ended. Returns its exit status."""
    # By its own id too: it may not lead a session yet.
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            end(worker, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


@contextmanager
def _raising_end_signals() -> Iterator[None]:
    """Within this context SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt."""
    before = {number: signal.signal(number, _exit) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
