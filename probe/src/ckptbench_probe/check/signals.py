"""Start a training, send it the signal of a scheduler after an update, and SIGKILL at the end of the grace."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckptbench_probe.check import stopping
from ckptbench_probe.check.processes import PAUSE_S, adopt_orphans, below
from ckptbench_probe.check.runs import LOG, Ended, started
from ckptbench_probe.launcher import environment
from ckptbench_probe.variables import CHECK, STOP_BY

LAUNCHER, RANKS, ALL = "launcher", "ranks", "all"
LINGER_S = 2.0
"""For processes to end after their launcher. Then they are killed, as Kubernetes and Slurm do."""


@dataclass(frozen=True)
class Signalled:
    """A run, and how it took the signal. The times are since then."""

    run: Ended
    sent: bool
    """Whether the training came so far."""
    ended_s: float | None = None
    """When the last process had ended; None where SIGKILL ended it at the end of the grace."""
    left: bool = False
    """Whether the launcher ended long before its processes."""
    grew: bool = False
    """Whether files of checkpoints were still written in the second half of the grace."""


def run(
    command: list[str],
    folder: Path,
    *,
    number: signal.Signals,
    to: str,
    grace_s: float,
    limit_s: float | None,
    checkpoints: Path,
    told: Mapping[str, str],
) -> Signalled:
    """`limit_s`: until the update. `checkpoints`: their folder. Raises CannotStartError."""
    folder.mkdir(parents=True)
    own = {STOP_BY: f"{number.name} {stopping.ITSELF if to in (RANKS, ALL) else to}"}
    variables = {**environment(os.environ, folder, folder.name), CHECK: "resume", **own, **told}
    begun = time.monotonic()
    adopt_orphans()
    with (folder / LOG).open("wb") as log, started(command, variables, log.fileno()) as child:
        ready = folder / stopping.READY
        while child.poll() is None and not ready.exists():
            if limit_s is not None and time.monotonic() - begun > limit_s:
                return Signalled(Ended(folder, 0, False, limit_s, hung=True), sent=False)
            time.sleep(PAUSE_S)
        if not ready.exists():
            return Signalled(Ended(folder, child.wait(), False, time.monotonic() - begun), False)
        sent = time.monotonic()
        if to in (LAUNCHER, ALL):
            child.send_signal(number)
        (folder / stopping.SENT).touch()
        ended_s, left, grew = _attend(child, folder, checkpoints, sent, grace_s)
    ended = Ended(folder, child.wait(), False, time.monotonic() - begun)
    return Signalled(ended, True, ended_s, left, grew)


def _attend(
    child: subprocess.Popen[bytes], folder: Path, checkpoints: Path, sent: float, grace_s: float
) -> tuple[float | None, bool, bool]:
    """Until all of it has ended, or until the end of the grace."""
    half: int | None = None
    launcher_ended: float | None = None
    while (now := time.monotonic() - sent) < grace_s:
        if child.poll() is not None:
            launcher_ended = now if launcher_ended is None else launcher_ended
            if not below(os.getpid()):
                return now, False, False
            if now - launcher_ended > LINGER_S:
                return now, True, False
        if half is None and now > grace_s / 2:
            half = _written(checkpoints)
        if now > grace_s - min(1.0, grace_s / 4):
            (folder / stopping.LOOK).touch()
        time.sleep(PAUSE_S)
    return None, False, half is not None and _written(checkpoints) != half


def _written(folder: Path) -> int:
    """A number that changes with the sizes of the files in a folder."""
    return sum(one.lstat().st_size + 1 for one in folder.rglob("*") if one.is_file())
