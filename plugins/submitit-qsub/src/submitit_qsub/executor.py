"""Submits with qsub: each function as a job, or many of one shape as one array."""

from __future__ import annotations

import copy
import os
import re
import shlex
import shutil
import uuid
from pathlib import Path
from typing import Any, ClassVar

from submitit.core import core, utils

from submitit_qsub import quoting
from submitit_qsub.parameters import Parameters


class QsubExecutor(core.PicklingExecutor):
    """One submitit task runs per job, on the first host of what the scheduler allocated. A subclass says how its qsub differs."""

    parameters_class: ClassVar[type[Parameters]] = Parameters
    own_program: ClassVar[str] = ""
    """A command that only this scheduler has: others have a qsub too."""
    host: ClassVar[str] = ""
    """From where one can submit, in words."""
    first_index: ClassVar[int] = 0
    """Of an array."""
    id_pattern: ClassVar[str] = ""
    """What qsub prints: the id of a job or of an array in the first group."""
    _array_size: int | None = None

    def __init__(
        self,
        folder: Path | str,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
    ) -> None:
        """`python`: the command that starts Python on the host. Raises ValueError if it is not one line."""
        super().__init__(folder, max_num_timeout, max_pickle_size_gb)
        if python is not None:
            self.update_parameters(python=python)

    @classmethod
    def affinity(cls) -> int:
        return 2 if shutil.which("qsub") and shutil.which(cls.own_program) else -1

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return cls.parameters_class.names()

    @property
    def asked(self) -> Any:
        """The parameters, checked. Raises ValueError."""
        return self.parameters_class(**self.parameters)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        self.parameters_class(**{**self.parameters, **kwargs})
        super()._internal_update_parameters(**kwargs)

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        if not shutil.which("qsub"):
            raise utils.FailedSubmissionError(f"qsub was not found: submit from {self.host}.")
        if len(delayed_submissions) == 1:
            return super()._internal_process_submissions(delayed_submissions)
        return self._submit_array(delayed_submissions)

    def _submit_array(self, submissions: list[utils.DelayedSubmission]) -> list[core.Job[Any]]:
        pickles = [self._pickle(submission) for submission in submissions]
        array = copy.copy(self)
        # Its jobs are followed, not the array itself.
        array.job_class = core.Job
        array._array_size = len(pickles)
        self._throttle()
        number = array._submit_command(self._submitit_command_str).job_id
        jobs: list[core.Job[Any]] = []
        for index, pickle in enumerate(pickles, start=self.first_index):
            jobs.append(self.job_class(self.folder, f"{number}_{index}"))
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
        folder = shlex.quote(str(self.folder))
        return f"{self.asked.python} -u -m submitit.core._submit {folder}"

    def _num_tasks(self) -> int:
        return 1

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        unsafe = sorted(
            name for name, value in os.environ.items() if quoting.is_unsafe(name, value)
        )
        unset = ["env", *(f"--unset={name}" for name in unsafe)] if unsafe else []
        return [*unset, "qsub", *self._qsub_options(), str(submission_file_path)]

    def _qsub_options(self) -> list[str]:
        """What does not stand in the submission file."""
        return []

    @classmethod
    def _get_job_id_from_submission_command(cls, string: bytes | str) -> str:
        text = string if isinstance(string, str) else string.decode()
        match = re.search(cls.id_pattern, text.strip(), re.MULTILINE)
        if match is None:
            raise utils.FailedSubmissionError(f"qsub printed no job id, but {text!r}")
        return match[1]
