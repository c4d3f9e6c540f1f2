"""A job, seen from inside."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType
from typing import ClassVar

from submitit.core.job_environment import JobEnvironment, SignalHandler

ONE_TASK = dict.fromkeys(("num_tasks", "node", "global_rank", "local_rank"), "SUBMITIT_ONE_TASK")
"""Never set: submitit runs one task a job, whatever was allocated."""


class QsubJobEnvironment(JobEnvironment):
    _env: ClassVar[dict[str, str]]

    @property
    def hostnames(self) -> list[str]:
        """The hosts of the allocation, the first being where the job's only task runs."""
        if not (hostfile := os.environ.get(self._env["nodes"])):
            return [self.hostname]
        lines = Path(hostfile).read_text().splitlines()
        return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


class StopHandler(SignalHandler):
    """One checkpoint is enough: another signal may follow while it is being written."""

    @property
    def signals(self) -> set[signal.Signals]:
        """Each may tell a job to stop."""
        return {signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, self.env._usr_sig()}

    def checkpoint_and_try_requeue(self, signum: int, frame: FrameType | None = None) -> None:
        self._ignore_more()
        super().checkpoint_and_try_requeue(signum, frame)

    def checkpoint_and_exit(self, signum: int, frame: FrameType | None = None) -> None:
        self._ignore_more()
        super().checkpoint_and_exit(signum, frame)

    def _ignore_more(self) -> None:
        for number in self.signals:
            signal.signal(number, signal.SIG_IGN)
