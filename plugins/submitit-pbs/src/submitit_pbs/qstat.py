"""The answers of `qstat -f -F json`, which are not always JSON.

PBS prints what looks like a number unquoted (`"Job_Name":007`), and some versions leave quotes,
backslashes and line ends in the job's variables as they are (openpbs issues 1255, 2049, 2541).
"""

from __future__ import annotations

import json
import re
from typing import Any

Record = dict[str, Any]


class QstatError(Exception):
    """The answer of qstat could not be read."""


def command(job_ids: list[str]) -> list[str]:
    """Asks for all of `job_ids` at once (`123`, `123[4]`), ended ones included; of an array,
    every subjob is listed."""
    arrays = any("[" in job_id for job_id in job_ids)
    asked = sorted({re.sub(r"\[\d+\]", "[]", job_id) for job_id in job_ids})
    return ["qstat", "-x", *(["-t"] if arrays else []), "-f", "-F", "json", *asked]


def read(text: str) -> dict[str, Record]:
    """What PBS knows of each job, by the id that its commands take: `123`, `123[4]`."""
    answer = _parse(text)
    jobs = answer.get("Jobs", {}) if isinstance(answer, dict) else {}
    return {job_id.partition(".")[0]: record for job_id, record in jobs.items()}


def _parse(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError:
        pass
    mended = "\n".join(map(_mend_line, _without_variables(text).splitlines()))
    try:
        return json.loads(mended, strict=False)
    except json.JSONDecodeError as error:
        line = (mended.splitlines() or [""])[error.lineno - 1]
        raise QstatError(f"qstat printed no JSON: {error.msg} in {line.strip()!r}") from error


def _without_variables(text: str) -> str:
    """Without each job's environment, which ends at a brace as far to the right as its name."""
    block = r'^([ \t]*)"Variable_List":\s*\{$.*?^\1\}(,?)$'
    return re.sub(block, r'\1"Variable_List":{}\2', text, flags=re.MULTILINE | re.DOTALL)


def _mend_line(line: str) -> str:
    """One `"name":value,` with a value that JSON takes."""
    match = re.fullmatch(r'(\s*"[^"]+":\s*)([^\s{\[].*?)(,?)', line)
    if match is None or _is_json(match[2]):
        return line
    inner = re.fullmatch(r'"(.*)"', match[2])
    return match[1] + json.dumps(inner[1] if inner else match[2]) + match[3]


def _is_json(value: str) -> bool:
    try:
        json.loads(value, strict=False)
    except json.JSONDecodeError:
        return False
    return True
