"""The user's command under the probe: started in their own environment, watched, and ended with all that it has started."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ckptbench.common.counters import Counters, shares
from ckptbench.common.errors import LaunchError
from ckptbench.common.processes import die_with_parent, is_orphan, living_with
from ckptbench.common.remedies import blame
from ckptbench.launch.limits import Limits

log = logging.getLogger(__name__)

MARK = "CKPTBENCH_PROBE_FOLDER"
"""The variable by which the probe reaches every process of the training, whatever session or parent this has. Its value is one run's."""
POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0
"""That processes of a command have to end by themselves, after SIGTERM or after the command has ended."""
KILL_SECONDS = 10.0
AGAIN = (
    "it is made again, from its beginning, when its job is requeued or the study is started again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended by itself."""

    status: int
    """Negative for a signal."""
    started_unix_s: float
    wall_s: float
    """From its start until it has ended, to 0.1 s; what the probe does after it is not in it."""
    others: float | None
    """Share of the machine's CPU time that other programs used meanwhile. None: unknown."""
    stolen: float | None
    """Share that the host of a virtual machine did not give."""
    left: int
    """Processes of the command that still ran when it had ended. None of them runs any more."""


def run_probed(
    words: list[str],
    *,
    probe: Path,
    output: Path,
    directory: Path,
    environment: Mapping[str, str],
    limits: Limits,
) -> Ended:
    """Run the command until it and the probe have ended.

    `probe` is the probe's folder, `output` the file of what the command prints. Raises LaunchError where it cannot be started, takes
    too long, is told to stop, or where the workflow is gone. Nothing that the command has started on this machine runs on.
    """
    launcher = [sys.executable, "-I", "-m", "ckptbench_probe.main", "run", "--folder", str(probe)]
    begin, started, unix_s = Counters.now(), time.monotonic(), time.time()
    running = _start([*launcher, "--", *words], output, directory, environment)
    over: tuple[float, Counters] | None = None
    had_begun = False
    try:
        while running.poll() is None:
            _raise_if_to_end(limits, output)
            begun = _has_child(running.pid)
            had_begun = had_begun or begun
            if had_begun and not begun and over is None:
                over = time.monotonic(), Counters.now()
            time.sleep(POLL_SECONDS)
    except BaseException as error:
        with suppress(ProcessLookupError):
            running.send_signal(signal.SIGTERM)  # the launcher hands it on to the command
        _end_all(running, str(probe))
        if isinstance(error, KeyboardInterrupt):
            raise LaunchError(f"the run was stopped by Ctrl-C: {AGAIN}") from None
        raise
    ended, end = over or (time.monotonic(), Counters.now())
    left = len(living_with(MARK, str(probe)))
    if killed := _end_all(running, str(probe)):
        log.warning(
            "the command ended and left %d of its processes running: they were killed after %g s, as they would slow the next run",
            killed,
            GRACE_SECONDS,
        )
    used = shares([(begin, end)], (ended - started) * end.cores)
    return Ended(
        status=running.returncode,
        started_unix_s=unix_s,
        wall_s=ended - started,
        others=_known(used["others"]),
        stolen=_known(used["stolen"]),
        left=left,
    )


def _start(
    words: list[str], output: Path, directory: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """In a session of its own, which a terminal's Ctrl-C does not reach. Where this process is killed, the launcher gets SIGTERM and
    hands it on."""
    parent = os.getpid()

    def prepare() -> None:
        die_with_parent(parent, by=signal.SIGTERM)

    try:
        with output.open("wb") as file:
            return subprocess.Popen(
                words,
                env=dict(environment),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 (it has one thread)
            )
    except OSError as error:
        raise LaunchError(
            f"the command cannot be started: {blame(error, error.filename or directory)}"
        ) from error


def _raise_if_to_end(limits: Limits, output: Path) -> None:
    seconds = limits.timeout_seconds
    if limits.stop.signal:
        raise LaunchError(f"the run was stopped, as told by {limits.stop.signal}: {AGAIN}")
    if is_orphan(limits.parent):
        raise LaunchError("the workflow that started this run is gone: the run was ended")
    if seconds is not None and time.monotonic() - limits.started > seconds:
        raise LaunchError(
            f"the run took longer than its {seconds:g} s (limits.run_minutes) and was ended (its output: {output})"
        )


def _has_child(process: int) -> bool:
    """Whether the process, which has one thread, has a child that was not waited for."""
    try:
        return bool(Path(f"/proc/{process}/task/{process}/children").read_bytes().split())
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return False


def _end_all(running: subprocess.Popen[bytes], probe: str) -> int:
    """Wait a while for the launcher and all that the command has started, and kill what is left. Returns how many that were."""
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and (running.poll() is None or living_with(MARK, probe)):
        time.sleep(POLL_SECONDS)
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline and (left := [*living_with(MARK, probe)]):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        killed.update(left)
        time.sleep(POLL_SECONDS)
    if running.poll() is None:
        running.kill()
    with suppress(subprocess.TimeoutExpired):
        running.wait(KILL_SECONDS)
    return len(killed)


def _known(share: float) -> float | None:
    return None if math.isnan(share) else share
