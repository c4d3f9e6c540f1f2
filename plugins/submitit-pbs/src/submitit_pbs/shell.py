"""The program that PBS starts to run a job's script (`qsub -S`).

PBS starts a shell, writes the name of the script to its standard input, and sends a job's signals
to this shell as well. A plain shell dies of them and takes the job with it, before the job has
stopped in good order. This program becomes the script's own shell, so that nothing stands above it.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

from submitit.core.utils import FailedSubmissionError, JobPaths

NAME = "pbs-shell"
TEXT = """\
#!/bin/bash
# PBS writes the name of the job's script to standard input, with backslashes as for a shell.
read script
# It names this program there, which takes no `-c` (parallel, tmux, ssh).
export SHELL=/bin/bash
exec /bin/bash --login "$script" </dev/null
"""
# What else is in a path, qsub takes for the end of it.
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)


def path(folder: Path) -> Path:
    """Where the program lies for submissions from `folder`: there, or below the home folder if
    `folder` has a space or another character that `-S` does not take."""
    home = os.environ.get("HOME", "")
    places = [JobPaths.get_first_id_independent_folder(folder), Path(home, ".submitit")]
    for place in places if os.path.isabs(home) else places[:1]:
        if _PLAIN.fullmatch(str(place / NAME)):
            return place / NAME
    raise FailedSubmissionError(
        f"qsub -S does not accept a path like {str(folder)!r}, nor HOME, which is {home!r}: submit from a folder whose "
        "path has only letters, digits and ._+-, or set HOME to one."
    )


def write(folder: Path) -> None:
    """Make the program unless it is there. A file that is open for writing cannot be executed, so
    it comes to its place by a rename."""
    program = path(folder)
    try:
        _write(program)
    except OSError as error:
        raise FailedSubmissionError(
            f"{program}, the job's shell, cannot be written ({error.strerror}): submit from a folder whose "
            "path has only letters, digits and ._+-, or set HOME to a writable folder."
        ) from error


def _write(program: Path) -> None:
    if program.exists() and program.read_text() == TEXT:
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    draft = program.with_name(f"{NAME}.{uuid.uuid4().hex}")
    draft.write_text(TEXT)
    draft.chmod(0o755)
    os.replace(draft, program)
