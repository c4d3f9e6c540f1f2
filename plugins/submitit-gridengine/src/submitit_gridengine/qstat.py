"""What qstat says of jobs that wait or run."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from submitit_qsub import Info, NoAnswerError

_AMPERSAND = re.compile(r"&(?!#?\w+;)")
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def command(user: str) -> list[str]:
    return ["qstat", "-u", user, "-xml"]


def read(output: str) -> dict[str, Info]:
    """By submitit's job id, from `qstat -xml`. Raises NoAnswerError where it is no XML, or not all of it."""
    infos: dict[str, Info] = {}
    for entry in _tree(output).iter("job_list"):
        number = entry.findtext("JB_job_number", "")
        for job_id in _job_ids(number, entry.findtext("tasks", "")):
            infos[job_id] = _info(job_id, entry)
    return infos


def _tree(output: str) -> ElementTree.Element:
    """Without what a site prints before and after; with the characters that qstat leaves as they are (names of
    jobs, say) written as XML wants them."""
    start, end = output.find("<job_info"), output.rfind(">") + 1
    text = _NOT_XML.sub("?", _AMPERSAND.sub("&amp;", output[max(start, 0) : end]))
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise NoAnswerError(f"qstat's answer cannot be read: {error}: {output[:80]!r}") from error


def held_commands(user: str) -> list[list[str]]:
    """The jobs that a user, an operator or the system holds, and not another job. Asked for together, 8.1.9 lists these as well."""
    return [["qstat", "-u", user, "-s", who, "-xml"] for who in ("huho", "hs")]


def reasons_command(job_ids: list[str]) -> list[str]:
    """Details of jobs in state E, whose list does not say why."""
    return ["qstat", "-j", ",".join(sorted({job_id.split("_")[0] for job_id in job_ids}))]


def read_reasons(output: str) -> dict[str, str]:
    """The error of each job and task of an array that has one, from `qstat -j`."""
    reasons: dict[str, str] = {}
    number = ""
    for line in output.splitlines():
        if line.startswith("job_number:"):
            number = line.split(":", 1)[1].strip()
        elif match := re.match(r"error reason\s+(\d+):\s+(.*)", line):
            reasons[number] = reasons[f"{number}_{match[1]}"] = match[2]
    return reasons


def _job_ids(number: str, tasks: str) -> list[str]:
    """`tasks` names those of an array that share a state: `3`, `4-20:1`, `1,3-5:2`; else empty."""
    if not tasks:
        return [number]
    job_ids = []
    for part in tasks.split(","):
        if match := re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip()):
            first, last, step = (int(group) if group else 0 for group in match.groups())
            job_ids += [f"{number}_{k}" for k in range(first, (last or first) + 1, step or 1)]
    return job_ids


def _info(job_id: str, entry: ElementTree.Element) -> Info:
    letters = entry.findtext("state", "")
    return {
        "JobID": job_id,
        "State": _state(letters),
        "GridEngineState": letters,
        "NodeList": entry.findtext("queue_name", "").partition("@")[2],
        **_stop(job_id, letters),
    }


def _stop(job_id: str, letters: str) -> Info:
    """What keeps the job from its start, or from going on, until somebody changes it. A queue's own suspension (S, T) passes."""
    number = job_id.replace("_", ".")
    delete = f"`qdel {number}` deletes it"
    if "h" in letters and _state(letters) == "PENDING":
        return {"Reason": "held", "Remedy": f"`qrls {number}` lets it go; {delete}"}
    if "s" in letters and _state(letters) == "RUNNING":
        return {"Reason": "suspended", "Remedy": f"`qmod -usj {number}` lets it go on; {delete}"}
    return {}


def stuck(job_id: str) -> Info:
    """Of a job whose deletion takes long."""
    number = job_id.replace("_", ".")
    return {
        "Reason": "its deletion is not over",
        "Remedy": f"`qhost -j` shows whether its host answers; `qdel -f {number}` removes the job if it does not",
    }


def _state(letters: str) -> str:
    """submitit's word for the letters of sge_status(5): `qw`, `hqw`, `r`, `dr`, `Rr`, `Eqw`..."""
    if "E" in letters:
        return "FAILED"
    if "d" in letters:
        return "COMPLETING"
    # A suspended job has its place.
    return "RUNNING" if set(letters) & set("rtsST") else "PENDING"
