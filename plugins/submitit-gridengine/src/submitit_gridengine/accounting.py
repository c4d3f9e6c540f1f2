"""What qacct says of jobs that have ended."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import dataclass

from submitit_gridengine.environment import REQUEUE_STATUS
from submitit_qsub import Info, NoAnswerError

_SLACK_S = 3600
"""Clocks of hosts differ, and qacct takes minutes."""
_NEEDED = frozenset({"taskid", "failed", "exit_status"})
_RESCHEDULED = {24, 25}
_KILLED_AT_LIMIT = 37
NONE_YET = "no jobs running since startup"
"""What qacct says, and fails, where no job has ended yet."""


@dataclass(frozen=True)
class Record:
    """One run of a job; a requeued job has several."""

    job_id: str
    host: str
    failed: int
    failed_text: str
    exit_status: int
    wallclock_s: float
    limits: dict[str, str]
    """What was asked for with -l."""
    max_memory: str


def command(user: str, since: float) -> list[str]:
    """All of the user's jobs that began after `since` (seconds since the epoch)."""
    begin = time.strftime("%Y%m%d%H%M", time.localtime(since - _SLACK_S))
    return ["qacct", "-o", user, "-b", begin, "-j"]


def read(output: str) -> dict[str, Record]:
    """The last run of each job, by submitit's job id. Raises NoAnswerError where the answer was cut off."""
    blocks = map(_fields, re.split(r"^=+$", output, flags=re.MULTILINE))
    runs = [fields for fields in blocks if "jobnumber" in fields]
    if runs and (not output.endswith("\n") or not _is_whole(runs[-1], runs[:-1])):
        raise NoAnswerError(f"qacct's answer was cut off at job {runs[-1]['jobnumber']}")
    # qrsh -inherit may leave a record of its own for every process of a parallel job.
    own = (run for run in runs if run.get("pe_taskid", "NONE") in ("NONE", "undefined"))
    return {record.job_id: record for record in map(_record, own)}


def _is_whole(run: dict[str, str], others: list[dict[str, str]]) -> bool:
    """Whether it has as many fields as the others; versions differ in their number."""
    return len(run) >= min(map(len, others), default=0) and run.keys() >= _NEEDED


def _fields(block: str) -> dict[str, str]:
    pairs = (line.split(None, 1) for line in block.splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def info(record: Record) -> Info:
    state, reason = _verdict(record)
    return {
        "JobID": record.job_id,
        "State": state,
        "Reason": reason,
        "NodeList": record.host,
        "ExitStatus": str(record.exit_status),
        "MaxMemory": record.max_memory,
    }


def _record(fields: dict[str, str]) -> Record:
    task = fields.get("taskid", "undefined")
    failed, _, failed_text = fields.get("failed", "0").partition(":")
    return Record(
        job_id=fields["jobnumber"] + (f"_{task}" if task.isdigit() else ""),
        host=fields.get("hostname", ""),
        failed=int(failed),
        failed_text=failed_text.strip(),
        exit_status=int(fields.get("exit_status", "0").split()[0]),
        wallclock_s=float(fields.get("ru_wallclock", "0").rstrip("s") or 0),
        limits=_limits(fields.get("category", "")),
        max_memory=fields.get("maxvmem", ""),
    )


def _limits(category: str) -> dict[str, str]:
    match = re.search(r"(?:^|\s)-l (\S+)", category)
    return dict(re.findall(r"([^,=]+)=([^,]*)", match[1])) if match else {}


def _verdict(record: Record) -> tuple[str, str]:
    """submitit's state, and the reason in words (empty: it ended well)."""
    if record.failed in _RESCHEDULED:
        return "REQUEUED", "requeued"
    over = _limit_passed(record)
    if record.exit_status == 0 and record.failed == 0:
        return "COMPLETED", ""
    if over == "h_rt":
        return "TIMEOUT", f"killed after its time limit h_rt ({record.limits['h_rt']} s)"
    if over == "s_rt":
        how = _ended(record)
        return "TIMEOUT", f"{how}, asked to stop after {record.limits['s_rt']} s (s_rt)"
    if record.failed == _KILLED_AT_LIMIT:
        memory = f"; it had used {record.max_memory} of memory" if record.max_memory else ""
        return "FAILED", f"killed at a limit (h_rt, h_cpu or h_vmem){memory}"
    return "FAILED", _ended(record)


def _limit_passed(record: Record) -> str | None:
    for name in ("h_rt", "s_rt"):
        limit = record.limits.get(name, "")
        if limit.isdigit() and record.wallclock_s >= int(limit):
            return name
    return None


def _ended(record: Record) -> str:
    number = record.exit_status - 128
    if number in set(signal.Signals):
        name = signal.Signals(number).name
        hint = ": qdel, a limit, or no memory left on the host" if number == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    if record.exit_status == REQUEUE_STATUS:
        return (
            f"asked to run again (exit status {REQUEUE_STATUS}), which this Grid Engine does not do (FORBID_RESCHEDULE, `qconf -sconf`): "
            "ask for an h_rt in which it ends"
        )
    if record.exit_status:
        return f"ended with exit status {record.exit_status}"
    return f"Grid Engine could not run it: {record.failed} ({record.failed_text})"
