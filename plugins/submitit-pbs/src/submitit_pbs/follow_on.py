"""A job that goes on with the work of another, which PBS would not requeue.

Only a manager or operator of PBS may `qrerun` (qrerun(1B)). For everybody else the job, told to
stop by its own clock, submits its own submission file once more; the new job has another id for
PBS and the same one for submitit, and a file beside the pickles says which belongs to which.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from submitit.core.utils import JobPaths

from submitit_pbs.script import continuation


def submit(paths: JobPaths) -> str:
    """Called inside the job. The id for PBS; raises CalledProcessError if qsub fails."""
    new_id = subprocess.run(
        ["qsub"],
        input=continuation(paths.submission_file.read_text(), str(paths.job_id)),
        cwd=os.environ.get("PBS_O_WORKDIR"),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    with _register(paths).open("a") as register:
        register.write(f"{new_id.partition('.')[0]}\n")
    return new_id


def current_id(paths: JobPaths) -> str:
    """The id, for PBS's commands, of the job that does the work now: `123`, `123[4]`."""
    try:
        return _register(paths).read_text().split()[-1]
    except (FileNotFoundError, IndexError):
        number, _, index = str(paths.job_id).partition("_")
        return f"{number}[{index}]" if index else number


def _register(paths: JobPaths) -> Path:
    return paths.folder / f"{paths.job_id}_pbs_ids.txt"
