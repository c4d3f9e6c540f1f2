"""Start a training for a check or a comparison, wait until it has ended or ended itself, and leave no process of it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ckptbench_probe.check.killing import ENDED
from ckptbench_probe.check.processes import (
    PAUSE_S,
    adopt_orphans,
    bury_adopted,
    dying_with_parent,
    end_all_below,
    end_below,
)
from ckptbench_probe.launcher import environment, not_executable, program_of
from ckptbench_probe.variables import CHECK

GRACE_S = 10.0
"""For a launcher, as torchrun and srun, to end after its ranks."""
LOG = "log.txt"


@dataclass(frozen=True)
class Ended:
    """A run of the training. Its folder has its traces and its log."""

    folder: Path
    code: int
    """Exit code, or minus the signal's number."""
    at_update: bool
    """Whether it ended itself after the update that it was told."""
    took_s: float
    hung: bool = False

    @property
    def failed(self) -> bool:
        return self.hung or (not self.at_update and self.code != 0)

    def reason(self) -> str:
        """How it failed, in a few words."""
        if self.hung:
            return f"hangs: it had not ended after {self.took_s:.0f} s"
        last = self.last_line()
        how = f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code}"
        return f"failed: {how}, its last line: {last[:200]}" if last else f"failed: {how}"

    def last_line(self, start: str = "") -> str:
        """Of its log, the last one that begins so and is not empty."""
        lines = (self.folder / LOG).read_text(errors="replace").split("\n")
        found = (line.strip() for line in reversed(lines) if line.startswith(start))
        return next(filter(None, found), "")


def run(
    command: list[str],
    folder: Path,
    *,
    check: str,
    limit_s: float | None,
    told: Mapping[str, str],
) -> Ended:
    """The command, whose standard output and error go to the log in the folder. `check`: what is looked at in it; empty: its times alone. `told`: variables of its processes. Raises CannotStartError."""
    folder.mkdir(parents=True)
    variables = {
        **environment(os.environ, folder, folder.name),
        CHECK: check,
        **told,
    }
    begun = time.monotonic()
    adopt_orphans()
    with (folder / LOG).open("wb") as log, started(command, variables, log.fileno()) as child:
        mark = folder / ENDED
        while child.poll() is None and not mark.exists():
            if limit_s is not None and time.monotonic() - begun > limit_s:
                return Ended(folder, 0, False, time.monotonic() - begun, hung=True)
            time.sleep(PAUSE_S)
        if mark.exists():
            _end(child)
        took_s = time.monotonic() - begun
        return Ended(folder, child.wait(), mark.exists(), took_s)


@contextmanager
def started(
    command: list[str], variables: dict[str, str], log: int
) -> Iterator[subprocess.Popen[bytes]]:
    program = program_of(command, variables)
    try:
        child = subprocess.Popen(
            command, executable=program, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=dying_with_parent(),  # noqa: PLW1509 - it has one thread
        )  # fmt: skip
    except OSError as error:
        raise not_executable(program, error) from error
    try:
        yield child
    except BaseException:
        _end(child)  # a launcher may still end what runs elsewhere
        raise
    finally:
        end_all_below(os.getpid())
        child.wait()
        bury_adopted()


def _end(child: subprocess.Popen[bytes]) -> None:
    """As a lost node: everything that runs here at once. The launcher may still end what runs elsewhere."""
    end_below(os.getpid(), but=child.pid)
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
