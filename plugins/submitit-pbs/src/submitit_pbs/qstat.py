"""The question to `qstat`, and its answer: one job a line, its fields divided by `|` (`-F dsv`).

Not `-F json`: of several arrays it lists only the first one's subjobs, and some versions leave
quotes and line ends as they are (openpbs issues 1255, 2049, 2541).
"""

from __future__ import annotations

import re

from submitit_qsub import NoAnswerError

Record = dict[str, str]
"""Of one job: what PBS calls `Resource_List.walltime` has this name here as well."""

_NO_HISTORY = "not configured to maintain job history"
_JOB = re.compile(r"^Job Id: ", re.MULTILINE)
_GONE = re.compile(r"^.*(?:Unknown Job|Job has finished).*$", re.MULTILINE)
_ID = re.compile(r"\b\d+(?:\[\d*\])?")
_DIVIDER = re.compile(r"(?<!\\)\|")


def command(job_ids: list[str], *, history: bool = True) -> list[str]:
    """Asks for all of `job_ids` at once (`123`, `123[4]`); of an array, every subjob is listed.

    `history`: ended jobs, too. A server that keeps no history then lists no job at all.
    """
    arrays = any("[" in job_id for job_id in job_ids)
    asked = sorted(set(map(of_array, job_ids)))
    options = [*(["-x"] if history else []), *(["-t"] if arrays else [])]
    return ["qstat", *options, "-f", "-F", "dsv", *asked]


def lacks_history(text: str) -> bool:
    """Whether qstat listed no job because the server keeps no history."""
    return _NO_HISTORY in text


def gone(text: str) -> set[str]:
    """The jobs and arrays that qstat, in its complaints, says that it does not know."""
    return {found[0] for line in _GONE.findall(text) if (found := _ID.search(line))}


def of_array(pbs_id: str) -> str:
    """`123[]` for `123[4]`."""
    return re.sub(r"\[\d+\]", "[]", pbs_id)


def read(text: str) -> dict[str, Record]:
    """What PBS knows of each job, by the id that its commands take: `123`, `123[4]`. Raises NoAnswerError
    for another answer, and for one that was cut off."""
    head, *jobs = _JOB.split(text)
    if head.strip() and not jobs:
        raise NoAnswerError(f"qstat listed no job, but said {head.strip()!r}")
    if jobs and not text.endswith("\n"):
        raise NoAnswerError(f"qstat's answer was cut off in {jobs[-1][:40]!r}")
    return dict(map(_read_job, jobs))


def _read_job(text: str) -> tuple[str, Record]:
    name, *fields = _DIVIDER.split(text.rstrip("\n"))
    pairs = (field.partition("=") for field in fields)
    record = {key: value.replace(r"\|", "|") for key, _, value in pairs}
    if "job_state" not in record:
        raise NoAnswerError(f"qstat's answer about job {name} is not complete")
    return name.partition(".")[0], record
