"""A job of PBS, seen from inside."""

from __future__ import annotations

import os
import signal
from typing import ClassVar

from submitit.core import logger
from submitit.core.utils import DelayedSubmission, FailedSubmissionError, JobPaths

from submitit_pbs import follow_on
from submitit_pbs.script import JOB_ID
from submitit_qsub import clock
from submitit_qsub.environment import ONE_TASK, QsubJobEnvironment, StopHandler


class PbsJobEnvironment(QsubJobEnvironment):
    _env: ClassVar[dict[str, str]] = {
        # 123, or 123_4 in an array: the same in every job that goes on with the first one's work.
        "job_id": JOB_ID,
        "nodes": "PBS_NODEFILE",
        **ONE_TASK,
    }

    @property
    def array_job_id(self) -> str | None:
        number, _, index = self.raw_job_id.partition("_")
        return number if index else None

    @property
    def array_task_id(self) -> str | None:
        """From 0; None in a job that is no array."""
        return self.raw_job_id.partition("_")[2] or None

    @property
    def num_nodes(self) -> int:
        return len(self.hostnames)

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """SIGTERM comes from PBS: at qdel, at the time limit, and as it requeues a job for
        another's sake. A job cannot tell which, so it checkpoints and leaves what comes then to
        PBS. By its own clock, or told with `qsig -s USR2`, it also asks to run again."""
        handler = StopHandler(self, paths, submission)
        signal.signal(signal.SIGCONT, handler.bypass)
        signal.signal(signal.SIGTERM, handler.checkpoint_and_exit)
        for number in (signal.SIGUSR1, self._usr_sig()):
            signal.signal(number, handler.checkpoint_and_try_requeue)
        clock.start(self._usr_sig())

    def _requeue(self, countdown: int) -> None:
        log = logger.get_logger()
        try:
            follow_on.ask(["qrerun", os.environ["PBS_JOBID"]])
            log.info(f"Requeued job {self.job_id} ({countdown} remaining timeouts)")
            return
        except FailedSubmissionError as error:
            refusal = error
        log.info(str(refusal))
        try:
            new_id = follow_on.submit(self.paths)
        except FailedSubmissionError as error:
            raise FailedSubmissionError(
                f"PBS did not requeue the job before its time limit ({refusal}; {error}). Its checkpoints are kept. Request a "
                f"longer time limit, or ask the site to allow qsub on {self.hostname}, and submit it again"
            ) from None
        log.info(f"Job {self.job_id} goes on as {new_id} ({countdown} remaining timeouts)")
