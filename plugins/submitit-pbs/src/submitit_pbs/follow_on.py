"""A job that goes on with the work of another, which PBS would not requeue.

Only a manager or operator of PBS may `qrerun` (qrerun(1B)). For everybody else the job, told to
stop by its own clock, submits its own submission file once more; the new job has another id for
PBS and the same one for submitit, and a file beside the pickles says which belongs to which.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from submitit.core.utils import FailedSubmissionError, JobPaths

from submitit_pbs.script import continuation


def submit(paths: JobPaths) -> str:
    """Called inside the job. The id for PBS; raises FailedSubmissionError with the words of qsub."""
    text = continuation(paths.submission_file.read_text(), str(paths.job_id))
    new_id = ask(["qsub"], text=text, cwd=os.environ.get("PBS_O_WORKDIR"))
    with _register(paths).open("a") as register:
        register.write(f"{new_id.partition('.')[0]}\n")
    return new_id


def ask(command: list[str], *, text: str | None = None, cwd: str | None = None) -> str:
    """What a command of PBS prints on a node. Raises FailedSubmissionError with what it says where it refuses, or is not there."""
    try:
        done = subprocess.run(
            command, input=text, cwd=cwd, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise FailedSubmissionError(f"{command[0]}: {error.strerror} on this node") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise FailedSubmissionError(f"{command[0]}: {said.removeprefix(f'{command[0]}: ')}")
    return done.stdout.strip()


def current_id(paths: JobPaths) -> str:
    """The id, for PBS's commands, of the job that does the work now: `123`, `123[4]`."""
    try:
        return _register(paths).read_text().split()[-1]
    except (FileNotFoundError, IndexError):
        number, _, index = str(paths.job_id).partition("_")
        return f"{number}[{index}]" if index else number


def _register(paths: JobPaths) -> Path:
    return paths.folder / f"{paths.job_id}_pbs_ids.txt"
