"""A job, seen from inside."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import ClassVar

from submitit.core.job_environment import JobEnvironment

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


def ignore(*numbers: signal.Signals) -> None:
    """One checkpoint is enough: another signal may follow while it is being written."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
