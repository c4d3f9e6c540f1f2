"""Results as submitit leaves them in its folders: seen there before any scheduler tells."""

import os
import pickle
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from submitit.core import utils
from submitit.core.core import Job


def read_results(jobs: Iterable[Job[Any]]) -> dict[str, str | None]:
    """The errors of the jobs whose results are there, by job id; None of one that ended well. One listing per folder, whatever the
    number of jobs."""
    listings: dict[Path, set[str]] = {}
    results: dict[str, str | None] = {}
    for job in jobs:
        folder = job.paths.folder
        if folder not in listings:
            listings[folder] = _listing(folder)
        path = job.paths.result_pickle
        if path.name in listings[folder]:
            with suppress(OSError, EOFError, pickle.UnpicklingError):  # not all of it is here yet
                kind, value = utils.pickle_load(path)
                results[job.job_id] = None if kind == "success" else _last_line(str(value))
    return results


def _listing(folder: Path) -> set[str]:
    with suppress(OSError):  # makes network file systems forget what they have cached
        os.chmod(folder, folder.stat().st_mode)
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()


def _last_line(traceback: str) -> str:
    """What the exception said, without its class's module and the way there."""
    last = traceback.strip().splitlines()[-1]
    name, colon, message = last.partition(": ")
    if "['scontrol', 'requeue'," in message:
        return (
            "Slurm did not take the job back before its time limit; the words of `scontrol requeue` are in its log. Ask for a "
            "runtime in which it ends, or leave out no_requeue"
        )
    return message if colon and " " not in name else last
