"""What Slurm says of jobs: which wait or run, and how the others ended."""

import os
import re
import subprocess
from pathlib import Path

from submitit.slurm import slurm

Info = dict[str, str]
ACTIVE = frozenset(
    [
        "PENDING",
        "RUNNING",
        "COMPLETING",
        "CONFIGURING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESIZING",
        "RESV_DEL_HOLD",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
        "UNKNOWN",
    ]
)
BY_ITSELF = frozenset({"COMPLETED", "FAILED"})
"""States of a job that ended without the scheduler's doing."""
QUERY_TIMEOUT_S = 60
_FIELDS = "JobID,State,ExitCode,Elapsed,Timelimit,NodeList"
_QUEUED = re.compile(
    r"(?P<JobID>\d+(?:_\d+)?)\|(?P<State>[A-Z_]+)\|(?:(?P<Priority>\d+)\|)?(?P<Reason>.*)"
)
_HELD = re.compile(r"held|(?<!thres)hold|special_exit|reservationdeleted")
_NEVER = re.compile(
    r"partition(config|(node|time)limit|m(ax|in)nodes)|per(job|node)|(assoc|qos)min|maxmemperlimit|(?<!run)minutes|grpwall"
    r"|badconstraints|dependencyneversatisfied|invalid(account|qos)|(account|qos)notallowed"
    r"|(association|qos)timelimit"
)
_OF_THE_SITE = re.compile(r"partition(down|inactive)|unavailablenodes:\S")
"""Reasons, in small letters, for which a job waits until somebody lets it go; changes it, or the limits of the site; or until
the site opens a partition or brings back the nodes that the job names."""


class SlurmWatcher(slurm.SlurmInfoWatcher):
    """squeue decides whether a job is over: in the accounting's eyes a job that is requeued has ended until it
    starts again. sacct tells how those ended that squeue shows ended, or no more."""

    note = ""
    """What a user should know of the answers: that the accounting is silent."""
    _accounting = True

    def forget(self, job_id: str) -> None:
        """Leaves the job out of the queries to come."""
        self._registered.discard(job_id)

    def ask(self) -> None:
        """Raises ConnectionError where squeue gives no whole answer, and leaves all states as they are."""
        if not (asked := set(self._registered)):  # another thread may add to it
            return
        self._num_calls += 1
        queue = read_queue(output(queue_command()))
        over = {job_id for job_id in asked if not _is_active(queue.get(job_id))}
        records = self._records(over) if over else {}
        for job_id in asked:
            ended = job_id in over
            queued = queue.get(job_id, {})
            self._info_dict[job_id] = _ending(queued, records.get(job_id)) if ended else queued

    def _records(self, job_ids: set[str]) -> dict[str, Info]:
        """What the accounting says of the jobs; nothing where it is off or does not answer."""
        if not self._accounting:
            return {}
        try:
            return self.read_info(_whole_lines(output(records_command(job_ids))))
        except ConnectionError as error:
            self._accounting = "accounting storage is disabled" not in str(error).lower()
            self.note = (
                f"Slurm's accounting does not report how jobs ended: {error}. squeue serves instead; a job that it has "
                "forgotten and that left no result fails after 10 minutes. Ask the site about sacct."
            )
            return {}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The state's name alone: `CANCELLED by 1000` is CANCELLED."""
        return super().get_state(job_id, mode).partition(" ")[0]

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        return self.get_state(job_id, mode).upper() not in ACTIVE


def queue_command() -> list[str]:
    """All jobs of the user that the controller has in mind: those that ended some minutes ago, too. Without their
    ids, for squeue fails where one of a single job is gone."""
    words = ("--noheader", "--array", "--states=all", "--format=%i|%T|%Q|%r")
    return ["squeue", *words, f"--user={os.getuid()}"]


def records_command(job_ids: set[str]) -> list[str]:
    ids = sorted({job_id.split("_")[0] for job_id in job_ids})
    # Without SLURM_BITSTR_LEN=0 the ids of a large pending array are cut short.
    return [
        *("env", "SLURM_BITSTR_LEN=0", "sacct", "--allocations", "--parsable2"),
        *(f"--format={_FIELDS}", f"--jobs={','.join(ids)}"),
    ]


def read_queue(text: str) -> dict[str, Info]:
    """Raises ConnectionError for an answer of squeue that was cut off, or that is another text."""
    found = [match.groupdict() for line in text.splitlines() if (match := _QUEUED.fullmatch(line))]
    if text and not (found and text.endswith("\n")):
        raise ConnectionError(f"squeue's answer cannot be read: {text[-80:]!r}")
    for info in found:
        info["Reason"] = "" if info["Reason"] == "None" else info["Reason"]
        info["Remedy"] = remedy(info)
    return {info["JobID"]: info for info in found}


def remedy(info: Info) -> str:
    """What a person must do before the job can run, with the command; "" where it goes on by itself."""
    job_id, state, delete = info["JobID"], info["State"], f"`scancel {info['JobID']}`"
    why = f"{state} {info['Reason']}".lower()
    if state not in ACTIVE or state == "RUNNING":
        return ""
    if state == "STOPPED":
        return f"`scancel --signal=CONT {job_id}` lets it go on, {delete} deletes it"
    if state == "SUSPENDED":  # what Slurm suspends for another job keeps its priority
        resume = f"`scontrol resume {job_id}` lets it go on, {delete} deletes it"
        return resume if info.get("Priority") == "0" else ""
    if _HELD.search(why):
        rights = " where an administrator gives it" if "heldadmin" in why else ""
        return f"`scontrol release {job_id}` lets it go{rights}, {delete} deletes it"
    if _NEVER.search(why):
        return f"{delete}, and ask for what `scontrol show partition` and the account allow"
    if _OF_THE_SITE.search(why):
        return f"`sinfo -R` and `scontrol show partition` show what the site must open or mend; {delete} deletes it"
    return ""


def was_killed(info: Info) -> bool:
    """Whether it ended by the scheduler's doing: by its state, or because of a signal."""
    signum = info.get("ExitCode", "").partition(":")[2]
    return info["State"].partition(" ")[0] not in BY_ITSELF or signum not in ("", "0")


def is_certain(info: Info) -> bool:
    """Whether squeue and sacct agree that it has ended."""
    return "ExitCode" in info and bool(info.get("Queue"))


def ending_words(info: Info, log: str) -> str:
    """The state of a job that ended, with what the accounting and the node said about it."""
    if "ExitCode" not in info:
        details = f"squeue: {info['Reason'] or 'no reason'}"
    else:
        details = f"exit code {info['ExitCode']}, after {info['Elapsed']} of {info['Timelimit']}, on {info['NodeList']}"
    return f"{info['State']} ({details}){log and f'; {log}'}"


def daemon_words(log: Path) -> str:
    """Why the node's daemon killed the job, as it noted in the job's log (memory, say); "" where
    it did not."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    errors = (line for line in lines if line.startswith("slurmstepd") and " ***" not in line)
    return next(errors, "")


def output(command: list[str]) -> str:
    """What one of Slurm's commands prints. Raises ConnectionError where it fails or takes too long."""
    name = next(word for word in command if word != "env" and "=" not in word)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=QUERY_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ConnectionError(f"{name} did not answer in {QUERY_TIMEOUT_S} s") from error
    except OSError as error:
        raise ConnectionError(f"{name}: {error}") from error
    if done.returncode != 0:
        raise ConnectionError(f"{name}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def _is_active(queued: Info | None) -> bool:
    return queued is not None and queued["State"] in ACTIVE


def _ending(queued: Info, record: Info | None) -> Info:
    """The accounting's record if it knows of the end; else what squeue says; nothing of a job that is gone."""
    if record is None or record["State"].partition(" ")[0] in ACTIVE:
        return queued
    return record | {"Queue": queued.get("State", "")}


def _whole_lines(text: str) -> str:
    """Lines with as many fields as the first. Raises ConnectionError for another text."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[0].startswith("JobID|"):
        raise ConnectionError(f"sacct's answer cannot be read: {text[:80]!r}")
    return "".join(line for line in lines if line.count("|") == lines[0].count("|"))
