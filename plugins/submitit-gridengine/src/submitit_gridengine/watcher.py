"""The state of any number of jobs from one qstat, and one qacct where some have ended."""

from __future__ import annotations

import os
import pwd
import time
from typing import ClassVar

from submitit_gridengine import accounting, qstat
from submitit_qsub import Info, NoAnswerError, QsubInfoWatcher
from submitit_qsub.watcher import DELETED, SILENCE_S, answer

DELETION_S = 300
"""How long the deletion of a job may take; a host that is there ends it in seconds."""


class GridEngineInfoWatcher(QsubInfoWatcher):
    """The accounting record of a job may appear some time after its end."""

    unknown: ClassVar[Info] = {
        "State": "CANCELLED",
        "Reason": "deleted, or its accounting cannot be read: it is neither in qstat nor in qacct",
    }

    def __init__(self, delay_s: int = 60) -> None:
        super().__init__(delay_s)
        self._deleted_at: dict[str, float] = {}
        """Since when jobs are being deleted, by the clock of the process."""
        self._by_somebody: dict[str, bool] = {}
        """Of jobs with a hold: whether a person or the system holds them."""

    def _look(self, asked: set[str]) -> dict[str, Info]:
        """Asks further about jobs that qstat shows broken or no more."""
        listed = qstat.read(_output(qstat.command(user_name())))
        infos = {job_id: listed[job_id] for job_id in asked & listed.keys()}
        self._note_listed(infos)
        self._note_deletions(infos)
        self._leave_out_what_waits(infos)
        self._add_reasons(infos)
        return infos | self._ended(asked - listed.keys())

    def _note_listed(self, infos: dict[str, Info]) -> None:
        for job_id, info in infos.items():
            self._missing_since.pop(job_id, None)
            if "d" in info["GridEngineState"]:
                self.cancelled.add(job_id)

    def _note_deletions(self, infos: dict[str, Info]) -> None:
        """A job on a host that does not answer is being deleted for ever."""
        deleted = {job_id for job_id, info in infos.items() if info["State"] == "COMPLETING"}
        now = time.monotonic()
        self._deleted_at = {job_id: self._deleted_at.get(job_id, now) for job_id in deleted}
        for job_id, since in self._deleted_at.items():
            if now - since >= DELETION_S:
                infos[job_id] |= qstat.stuck(job_id)

    def _leave_out_what_waits(self, infos: dict[str, Info]) -> None:
        """qstat has one letter for a hold, and for a job that waits for another or for a time."""
        held = {job_id for job_id, info in infos.items() if info.get("Reason") == "held"}
        if held - self._by_somebody.keys():
            answers = map(_output, qstat.held_commands(user_name()))
            by_somebody = {job_id for answer in answers for job_id in qstat.read(answer)}
            self._by_somebody = {job_id: job_id in by_somebody for job_id in held}
        for job_id in held:
            if not self._by_somebody[job_id]:
                infos[job_id] |= {"Reason": "waits for another job", "Remedy": ""}

    def _add_reasons(self, infos: dict[str, Info]) -> None:
        broken = [job_id for job_id, info in infos.items() if info["State"] == "FAILED"]
        if not broken:
            return
        reasons = qstat.read_reasons(answer(qstat.reasons_command(broken)).stdout)
        for job_id in broken:
            why = reasons.get(job_id, "no reason given")
            number = job_id.replace("_", ".")
            infos[job_id]["Reason"] = f"{why} (state Eqw: it stays queued until `qdel {number}`)"

    def _ended(self, job_ids: set[str]) -> dict[str, Info]:
        if not job_ids:
            return {}
        since = min(self._submitted_at(job_id) for job_id in job_ids)
        try:
            records = accounting.read(_output(accounting.command(user_name(), since)))
            patience_s = None
        except NoAnswerError:
            records, patience_s = {}, SILENCE_S
        return {
            job_id: self._without_record(job_id, patience_s)
            if (record := records.get(job_id)) is None
            else self._judge(accounting.info(record))
            for job_id in job_ids
        }

    def _submitted_at(self, job_id: str) -> float:
        """Seconds since the epoch; the job may be one of an earlier process."""
        file = self._paths[job_id].submission_file
        return file.stat().st_mtime if file.exists() else time.time()

    def _judge(self, info: Info) -> Info:
        """A run that was to be requeued is not the last one, unless the job was deleted."""
        job_id, state = info["JobID"], info["State"]
        if state == "REQUEUED":
            return self._without_record(job_id)
        if state == "FAILED" and job_id in self.cancelled:
            return info | DELETED
        return info


def user_name() -> str:
    """As Grid Engine knows the user; the number of one without a name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or str(os.geteuid())


def _output(command: list[str]) -> str:
    """What a query prints. Raises NoAnswerError where it fails; qacct does so with no accounting file yet."""
    done = answer(command)
    if done.returncode != 0 and accounting.NONE_YET not in done.stdout + done.stderr:
        raise NoAnswerError(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
