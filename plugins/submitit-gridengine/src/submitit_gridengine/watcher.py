"""The state of any number of jobs from one qstat, and one qacct where some have ended."""

from __future__ import annotations

import os
import pwd
import time
from typing import ClassVar

from submitit_gridengine import accounting, qstat
from submitit_qsub import Info, NoAnswerError, QsubInfoWatcher
from submitit_qsub.watcher import DELETED, SILENCE_S, answer


class GridEngineInfoWatcher(QsubInfoWatcher):
    """The accounting record of a job may appear some time after its end."""

    unknown: ClassVar[Info] = {
        "State": "CANCELLED",
        "Reason": "deleted, or its accounting cannot be read: it is neither in qstat nor in qacct",
    }

    def _look(self, asked: set[str]) -> dict[str, Info]:
        """Asks further about jobs that qstat shows broken or no more."""
        listed = qstat.read(_output(qstat.command(user_name())))
        infos = {job_id: listed[job_id] for job_id in asked & listed.keys()}
        self._note_listed(infos)
        self._add_reasons(infos)
        return infos | self._ended(asked - listed.keys())

    def _note_listed(self, infos: dict[str, Info]) -> None:
        for job_id, info in infos.items():
            self._missing_since.pop(job_id, None)
            if "d" in info["GridEngineState"]:
                self.cancelled.add(job_id)

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
