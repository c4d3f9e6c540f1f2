"""Results as submitit leaves them in its folders: seen there before any scheduler tells."""

import os
import pickle
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from submitit.core import utils
from submitit.core.core import Job


@dataclass(frozen=True)
class Result:
    """How a job's command ended; `error` is None where it ended well."""

    error: str | None = None


def read_results(jobs: Iterable[Job[Any]]) -> dict[str, Result]:
    """Results that are there, by job id: one listing per folder, whatever the number of jobs."""
    listings: dict[Path, set[str]] = {}
    results = {}
    for job in jobs:
        folder = job.paths.folder
        if folder not in listings:
            listings[folder] = _listing(folder)
        path = job.paths.result_pickle
        if path.name in listings[folder] and (result := _read(path)):
            results[job.job_id] = result
    return results


def _listing(folder: Path) -> set[str]:
    with suppress(OSError):  # makes network file systems forget what they have cached
        os.chmod(folder, folder.stat().st_mode)
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()


def _read(path: Path) -> Result | None:
    try:
        kind, value = utils.pickle_load(path)
    except (OSError, EOFError, pickle.UnpicklingError):
        return None  # not all of it has arrived on this node
    return Result() if kind == "success" else Result(_last_line(str(value)))


def _last_line(traceback: str) -> str:
    """What the exception said, without its class's module and the way there."""
    last = traceback.strip().splitlines()[-1]
    name, colon, message = last.partition(": ")
    return message if colon and " " not in name else last
