"""PBS's words for the state of a job as submitit's, and the reason for its end."""

from __future__ import annotations

import shlex
import signal

from submitit_pbs.qstat import Record, of_array
from submitit_qsub import Info

# A suspended job (S, U) has its place.
_STATES = {
    **dict.fromkeys("QHWT", "PENDING"),
    **dict.fromkeys("RBSU", "RUNNING"),
    "E": "COMPLETING",
}
_ENDED = ("F", "X")
_SUBSTATE_DELETED = "91"
_SUBSTATE_NOT_RUN = "70"
_SUBSTATE_DEPENDS = "22"
"""Held until another job has ended."""
_SUBSTATE_SUSPENDED = "43"
_STOPPED = "queue not started"
_NEVER = "can never run"
"""Part of the comment on a job that asks for more than there is."""

# Exit statuses below 0 are PBS's own (src/include/job.h of OpenPBS).
_OWN_STATUSES = {
    -1: "PBS could not start it, before files were set up",
    -2: "PBS could not start it, after files were set up",
    -3: "PBS could not start it, and tried again",
    -4: "ended as PBS started again on its node",
    -10: "no such user on the node",
    -11: "requeued",
    -17: "a hook of the site refused it",
    -19: "a hook of the site deleted it",
    -24: "killed: more CPUs used than asked for (burst)",
    -25: "killed: more CPUs used than asked for",
    -26: "killed at its limit of virtual memory (vmem)",
    -27: "killed at its limit of memory (mem)",
    -28: "killed at its limit of CPU time (cput)",
    -29: "killed after its time limit (walltime)",
}
_TIMEOUT = -29
_OUT_OF_MEMORY = {-26, -27}


def info(job_id: str, record: Record) -> Info:
    """`job_id` is submitit's. The state UNKNOWN: ended, and PBS does not say how. The reason: why a
    job waits, or why it ended without a result."""
    letter = record["job_state"]
    if letter in _ENDED:
        state, reason = _verdict(record)
        reason = _with_comment(reason, record)
    else:
        state = _STATES.get(letter, "UNKNOWN")
        reason = record.get("comment", "") if state == "PENDING" else ""
        reason = "suspended" if _is_suspended(record) else reason
    return {
        "JobID": job_id,
        "State": state,
        "Reason": reason,
        "PbsState": letter,
        "NodeList": record.get("exec_host", ""),
        "ExitStatus": record.get("Exit_status", ""),
    }


def remedy(pbs_id: str, record: Record, array: Record) -> str:
    """What a person must do before the job can run, with the command; "" where it goes on by itself.

    `array`: of a subjob. It is held as a whole, and its subjobs show that in a second field only."""
    comment = record.get("comment", "").lower()
    state, delete = record["job_state"], f"`qdel {shlex.quote(pbs_id)}`"
    own, whole = (each.get("Hold_Types", "").strip("n") for each in (record, array))
    kinds = own or whole
    if state == "H" or (state == "Q" and kinds):
        if _SUBSTATE_DEPENDS in (record.get("substate"), array.get("substate")):
            return ""
        release = f"`qrls -h {kinds or 'u'} {shlex.quote(of_array(pbs_id))}`"
        rights = "" if kinds in ("", "u") else ", where a manager of PBS gives it"
        return f"{release} lets it go{rights}; {delete} deletes it"
    if _is_suspended(record):
        return f"`qsig -s resume {shlex.quote(pbs_id)}` lets it go on; {delete} deletes it"
    if state == "Q" and _NEVER in comment:
        return f"{delete}, and ask for less"
    if state == "Q" and _STOPPED in comment:
        queue = record.get("queue", "")
        return f"`qstat -Qf {queue}` shows the queue, which the site must start; {delete}, and use another"
    return ""


def _is_suspended(record: Record) -> bool:
    """By `qsig -s suspend`: what the scheduler itself suspends, it resumes."""
    return record["job_state"] == "S" and record.get("substate") == _SUBSTATE_SUSPENDED


def _verdict(record: Record) -> tuple[str, str]:
    status = _number(record.get("Exit_status"))
    if status is None:
        deleted = record.get("substate") == _SUBSTATE_DELETED or record["job_state"] == "F"
        return ("CANCELLED", "deleted before it ran") if deleted else ("UNKNOWN", "")
    if status == 0:
        return "COMPLETED", ""
    if status < 0:
        return _own_verdict(status)
    if _time_is_over(record):
        return "TIMEOUT", f"{_ended(status)}, after its time limit (walltime)"
    if record.get("substate") == _SUBSTATE_DELETED:
        return "CANCELLED", f"deleted ({_ended(status)})"
    return "FAILED", _ended(status)


def was_deleted(record: Record) -> bool:
    """Whether somebody deleted the job, which has ended. PBS itself says of some of these nothing, or
    exit status 0: of those that stopped in good order, and of subjobs that had not yet run."""
    return record.get("substate") in (_SUBSTATE_DELETED, _SUBSTATE_NOT_RUN)


def _own_verdict(status: int) -> tuple[str, str]:
    reason = _OWN_STATUSES.get(status, f"PBS ended it (exit status {status})")
    if status == _TIMEOUT:
        return "TIMEOUT", reason
    return ("OUT_OF_MEMORY" if status in _OUT_OF_MEMORY else "FAILED"), reason


def _ended(status: int) -> str:
    """PBS adds 256 to the number of a signal that ended the job's shell; a shell adds 128."""
    for offset in (256, 128):
        if status - offset in set(signal.Signals):
            return f"killed by {signal.Signals(status - offset).name}"
    return f"ended with exit status {status}"


def _time_is_over(record: Record) -> bool:
    used = _seconds(record.get("resources_used.walltime", ""))
    limit = _seconds(record.get("Resource_List.walltime", ""))
    return limit is not None and used is not None and used >= limit


def _seconds(text: str) -> int | None:
    """Of a time written HH:MM:SS or as a number of seconds."""
    parts = text.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return seconds


def _with_comment(reason: str, record: Record) -> str:
    comment = record.get("comment", "").strip()
    return f"{reason}; PBS says: {comment}" if reason and comment else reason


def _number(text: str | None) -> int | None:
    return int(text) if text and text.removeprefix("-").isdigit() else None
