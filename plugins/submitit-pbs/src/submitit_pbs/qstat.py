"""The question to `qstat`, and its answer: one job a line, its fields divided by `|` (`-F dsv`).

Not `-F json`: of several arrays it lists only the first one's subjobs, and some versions leave
quotes and line ends as they are (openpbs issues 1255, 2049, 2541).
"""

from __future__ import annotations

import re

Record = dict[str, str]
"""Of one job: what PBS calls `Resource_List.walltime` has this name here as well."""

_NO_HISTORY = "not configured to maintain job history"
_JOB = re.compile(r"^Job Id: ", re.MULTILINE)
_DIVIDER = re.compile(r"(?<!\\)\|")


class QstatError(Exception):
    """The answer of qstat could not be read."""


def command(job_ids: list[str], *, history: bool = True) -> list[str]:
    """Asks for all of `job_ids` at once (`123`, `123[4]`); of an array, every subjob is listed.

    `history`: ended jobs, too. A server that keeps no history then lists no job at all.
    """
    arrays = any("[" in job_id for job_id in job_ids)
    asked = sorted({re.sub(r"\[\d+\]", "[]", job_id) for job_id in job_ids})
    options = [*(["-x"] if history else []), *(["-t"] if arrays else [])]
    return ["qstat", *options, "-f", "-F", "dsv", *asked]


def lacks_history(text: str) -> bool:
    """Whether qstat listed no job because the server keeps no history."""
    return _NO_HISTORY in text


def read(text: str) -> dict[str, Record]:
    """What PBS knows of each job, by the id that its commands take: `123`, `123[4]`."""
    head, *jobs = _JOB.split(text)
    if head.strip() and not jobs:
        raise QstatError(f"qstat listed no job, but said {head.strip()!r}")
    return dict(map(_read_job, jobs))


def _read_job(text: str) -> tuple[str, Record]:
    name, *fields = _DIVIDER.split(text.rstrip("\n"))
    pairs = (field.partition("=") for field in fields)
    record = {key: value.replace(r"\|", "|") for key, _, value in pairs}
    if "job_state" not in record:
        raise QstatError(f"qstat's answer about job {name} is not complete")
    return name.partition(".")[0], record
