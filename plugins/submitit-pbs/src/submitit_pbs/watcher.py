"""The state of any number of jobs from one qstat."""

from __future__ import annotations

from typing import ClassVar

from submitit_pbs import qstat, verdict
from submitit_pbs.follow_on import current_id
from submitit_qsub import Info, NoAnswerError, QsubInfoWatcher
from submitit_qsub.watcher import DELETED, SILENCE_S, answer


class PbsInfoWatcher(QsubInfoWatcher):
    """With PBS's job history off, a job that has ended is gone at once."""

    unknown: ClassVar[Info] = {
        "State": "FAILED",
        "Reason": "PBS does not know how it ended (is its job history on?), and it left no result",
    }

    def _look(self, asked: set[str]) -> dict[str, Info]:
        ids = {job_id: current_id(self._paths[job_id]) for job_id in sorted(asked)}
        records, gone = _ask(list(ids.values()))
        return {
            job_id: self._without_mention(job_id, pbs_id, gone)
            if (record := records.get(pbs_id)) is None
            else self._info(job_id, pbs_id, record, records.get(qstat.of_array(pbs_id), {}))
            for job_id, pbs_id in ids.items()
        }

    def _without_mention(self, job_id: str, pbs_id: str, gone: set[str]) -> Info:
        """qstat names each job that it does not know: a job that it neither lists nor names was cut off."""
        if current_id(self._paths[job_id]) != pbs_id:
            return _requeued(job_id)
        named = pbs_id in gone or qstat.of_array(pbs_id) in gone
        return self._without_record(job_id, None if named else SILENCE_S)

    def _info(self, job_id: str, pbs_id: str, record: qstat.Record, array: qstat.Record) -> Info:
        info = verdict.info(job_id, record) | {"Remedy": verdict.remedy(pbs_id, record, array)}
        if info["PbsState"] in ("F", "X"):
            if current_id(self._paths[job_id]) != pbs_id:
                return _requeued(job_id)
            if info["State"] in ("COMPLETED", "UNKNOWN") and verdict.was_deleted(record):
                done = self._paths[job_id].result_pickle.exists()
                return info | ({"State": "COMPLETED"} if done else DELETED)
            if info["State"] == "UNKNOWN":
                return self._without_record(job_id)
        self._missing_since.pop(job_id, None)
        if info["State"] == "FAILED" and job_id in self.cancelled:
            return info | {"State": "CANCELLED", "Reason": f"deleted ({info['Reason']})"}
        return info


def _requeued(job_id: str) -> Info:
    """Of a job that submitted the one that goes on with its work after the question was made."""
    return {"JobID": job_id, "State": "REQUEUED"}


def _ask(pbs_ids: list[str]) -> tuple[dict[str, qstat.Record], set[str]]:
    """What qstat says of each job, and which jobs it says are gone. A server without history is asked again
    for the jobs that it still has. Raises NoAnswerError."""
    done = answer(qstat.command(pbs_ids))
    if qstat.lacks_history(done.stderr):
        done = answer(qstat.command(pbs_ids, history=False))
    gone = qstat.gone(done.stderr)
    if done.returncode != 0 and not gone:
        raise NoAnswerError(f"qstat failed: {done.stderr.strip()}")
    if not done.stdout.strip() and not gone:
        raise NoAnswerError("qstat printed nothing")
    return qstat.read(done.stdout), gone
