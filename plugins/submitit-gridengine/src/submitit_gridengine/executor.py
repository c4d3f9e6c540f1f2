"""Submits to Grid Engine with qsub."""

from __future__ import annotations

import copy
import os
import re
import shlex
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

from submitit.core import core, utils

from submitit_gridengine.job import GridEngineJob
from submitit_gridengine.parameters import Parameters
from submitit_gridengine.script import depends_on_job, script, unset_unsafe


class GridEngineExecutor(core.PicklingExecutor):
    """Submits each function as a job, or many of one shape as one array job.

    One submitit task runs per job, on the first host of what Grid Engine allocated. Tasks of an
    array count from 1, as in Grid Engine: submitit's id `123_1` is Grid Engine's task 123.1.
    """

    job_class: type[core.Job[Any]] = GridEngineJob
    _array_tasks: int | None = None

    @classmethod
    def affinity(cls) -> int:
        # PBS has a qsub and a qstat too; qconf is Grid Engine's alone.
        return 2 if shutil.which("qsub") and shutil.which("qconf") else -1

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return Parameters.names()

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        Parameters(**{**self.parameters, **kwargs})
        super()._internal_update_parameters(**kwargs)

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        if not shutil.which("qsub"):
            raise utils.FailedSubmissionError(
                "qsub was not found: submit from a submission host of Grid Engine, with its "
                "settings.sh sourced."
            )
        if len(delayed_submissions) == 1:
            jobs = super()._internal_process_submissions(delayed_submissions)
        else:
            jobs = self._submit_array(delayed_submissions)
        if depends_on_job(self.folder):
            # Grid Engine opens the logs as it starts a job: their folder exists only now.
            main_id = jobs[0].job_id.split("_")[0]
            subprocess.run(["qrls", main_id], check=True, stdout=subprocess.DEVNULL)
        return jobs

    def _submit_array(self, submissions: list[utils.DelayedSubmission]) -> list[core.Job[Any]]:
        pickles = [self._pickle(submission) for submission in submissions]
        array = copy.copy(self)
        # Its tasks are followed, not the array itself.
        array.job_class = core.Job
        array._array_tasks = len(pickles)
        self._throttle()
        main_id = array._submit_command(self._submitit_command_str).job_id
        jobs: list[core.Job[Any]] = []
        for task, pickle in enumerate(pickles, start=1):
            jobs.append(GridEngineJob(self.folder, f"{main_id}_{task}"))
            jobs[-1].paths.move_temporary_file(pickle, "submitted_pickle")
        return jobs

    def _pickle(self, submission: utils.DelayedSubmission) -> Path:
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.pkl"
        submission.set_timeout(self.parameters.get("timeout_min", 5), self.max_num_timeout)
        submission.dump(path)
        return path

    @property
    def _submitit_command_str(self) -> str:
        python = Parameters(**self.parameters).python
        return f"{python} -u -m submitit.core._submit {shlex.quote(str(self.folder))}"

    def _num_tasks(self) -> int:
        return 1

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return script(Parameters(**self.parameters), command, self.folder, self._array_tasks)

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        # The account stands here because ABCI's qsub takes its -g from the command line.
        parameters = Parameters(**self.parameters)
        name = parameters.account
        account = [parameters.account_option, str(name)] if name else []
        unset = unset_unsafe(os.environ)
        return [*unset, "qsub", "-terse", *account, str(submission_file_path)]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        """From what `qsub -terse` prints: `123`, or `123.1-20:1` for an array."""
        text = string if isinstance(string, str) else string.decode()
        match = re.search(r"^(\d+)(\.\d+-\d+:\d+)?$", text.strip(), re.MULTILINE)
        if match is None:
            raise utils.FailedSubmissionError(f"qsub printed no job id, but {text!r}")
        return match[1]
