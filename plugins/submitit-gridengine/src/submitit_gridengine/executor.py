"""Submits to Grid Engine with qsub."""

from __future__ import annotations

import subprocess
from typing import Any, ClassVar

from submitit.core import core, utils
from submitit.core.core import R

from submitit_gridengine.parameters import GridEngineParameters
from submitit_gridengine.script import depends_on_job, script
from submitit_gridengine.watcher import GridEngineInfoWatcher
from submitit_qsub import Parameters, QsubExecutor, QsubJob


class GridEngineJob(QsubJob[R]):
    # SIGUSR2 comes before the SIGKILL of a job that is rescheduled (`-notify`).
    _interrupt_command: ClassVar[tuple[str, ...]] = ("qmod", "-rj")
    watcher = GridEngineInfoWatcher()

    def scheduler_id(self) -> str:
        return str(self.job_id).replace("_", ".")


class GridEngineExecutor(QsubExecutor):
    """Tasks of an array count from 1, as in Grid Engine: submitit's id `123_1` is Grid Engine's task 123.1."""

    job_class: type[core.Job[Any]] = GridEngineJob
    parameters_class: ClassVar[type[Parameters]] = GridEngineParameters
    own_program: ClassVar[str] = "qconf"
    host: ClassVar[str] = "a submission host of Grid Engine, with its settings.sh sourced"
    first_index: ClassVar[int] = 1
    id_pattern: ClassVar[str] = r"^(\d+)(\.\d+-\d+:\d+)?$"

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        jobs = super()._internal_process_submissions(delayed_submissions)
        if depends_on_job(self.folder):
            # Grid Engine opens the logs as it starts a job: their folder exists only now.
            main_id = jobs[0].job_id.split("_")[0]
            subprocess.run(["qrls", main_id], check=True, stdout=subprocess.DEVNULL)
        return jobs

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return script(self.asked, command, self.folder, self._array_size)

    def _qsub_options(self) -> list[str]:
        # The account stands here because qsub of TSUBAME takes its -g from the command line alone.
        asked = self.asked
        account = [asked.account_option, str(asked.account)] if asked.account else []
        return ["-terse", *account]
