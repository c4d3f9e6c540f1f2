"""A job of Grid Engine, seen from inside."""

from __future__ import annotations

import signal
import sys
from typing import ClassVar

from submitit.core import logger
from submitit.core.utils import DelayedSubmission, JobPaths

from submitit_qsub import clock
from submitit_qsub.environment import ONE_TASK, QsubJobEnvironment, StopHandler

REQUEUE_STATUS = 99
"""The exit status that makes Grid Engine run the job again under the same id; a job that is
being deleted stays deleted (seen with 8.1.9)."""


class GridEngineJobEnvironment(QsubJobEnvironment):
    _env: ClassVar[dict[str, str]] = {
        "job_id": "JOB_ID",
        "array_job_id": "JOB_ID",
        "array_task_id": "SGE_TASK_ID",
        "num_nodes": "NHOSTS",
        "nodes": "PE_HOSTFILE",
        **ONE_TASK,
    }

    @property
    def array_job_id(self) -> str | None:
        return super().array_job_id if self.array_task_id else None

    @property
    def array_task_id(self) -> str | None:
        """From 1; None in a job that is no array."""
        task = super().array_task_id
        return None if task == "undefined" else task

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """SIGUSR1 comes before a suspension and at a soft time limit, SIGUSR2 from the job's own clock and before a
        SIGKILL, SIGTERM where a queue's terminate_method says so: each is the order to stop."""
        handler = _Requeue(self, paths, submission)
        signal.signal(signal.SIGCONT, handler.bypass)
        for number in handler.signals:
            signal.signal(number, handler.checkpoint_and_try_requeue)
        clock.start(self._usr_sig())

    def _requeue(self, countdown: int) -> None:
        logger.get_logger().info(
            f"Leaving with status {REQUEUE_STATUS}: Grid Engine requeues job {self.job_id} "
            f"({countdown} remaining timeouts)"
        )


class _Requeue(StopHandler):
    def _exit(self) -> None:
        sys.stdout.flush()
        sys.exit(REQUEUE_STATUS)
