"""Submits to PBS with qsub."""

from __future__ import annotations

import copy
import os
import re
import shlex
import shutil
import uuid
from pathlib import Path
from typing import Any

from submitit.core import core, utils

from submitit_pbs import shell
from submitit_pbs.job import PbsJob
from submitit_pbs.parameters import Parameters
from submitit_pbs.script import script, unset_unsafe


class PbsExecutor(core.PicklingExecutor):
    """Submits each function as a job, or many of one shape as one array.

    One submitit task runs per job, on the first host of what PBS allocated. submitit's ids are
    PBS's sequence numbers without the server: `123` is 123.server, `123_0` is 123[0].server.
    """

    job_class: type[core.Job[Any]] = PbsJob
    _subjobs: int | None = None

    @classmethod
    def affinity(cls) -> int:
        # Grid Engine has a qsub and a qstat too; pbsnodes it has not.
        return 2 if shutil.which("qsub") and shutil.which("pbsnodes") else -1

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
                "qsub was not found: submit from a host with PBS's commands on its PATH."
            )
        shell.write(self.folder)
        if len(delayed_submissions) == 1:
            return super()._internal_process_submissions(delayed_submissions)
        return self._submit_array(delayed_submissions)

    def _submit_array(self, submissions: list[utils.DelayedSubmission]) -> list[core.Job[Any]]:
        pickles = [self._pickle(submission) for submission in submissions]
        array = copy.copy(self)
        # Its subjobs are followed, not the array itself.
        array.job_class = core.Job
        array._subjobs = len(pickles)
        self._throttle()
        number = array._submit_command(self._submitit_command_str).job_id
        jobs: list[core.Job[Any]] = []
        for index, pickle in enumerate(pickles):
            jobs.append(PbsJob(self.folder, f"{number}_{index}"))
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
        return script(Parameters(**self.parameters), command, self.folder, self._subjobs)

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return [*unset_unsafe(os.environ), "qsub", str(submission_file_path)]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        """From what qsub prints: `123.server`, or `123[].server` for an array."""
        text = string if isinstance(string, str) else string.decode()
        match = re.search(r"^(\d+)(\[\])?(\.\S+)?$", text.strip(), re.MULTILINE)
        if match is None:
            raise utils.FailedSubmissionError(f"qsub printed no job id, but {text!r}")
        return match[1]
