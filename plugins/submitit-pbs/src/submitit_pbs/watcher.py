"""The state of any number of jobs from one qstat."""

from __future__ import annotations

import subprocess
import time
from typing import ClassVar

from submitit.core import logger

from submitit_pbs import qstat, verdict
from submitit_pbs.follow_on import current_id
from submitit_qsub import Info, QsubInfoWatcher
from submitit_qsub.watcher import DELETED, ask


class PbsInfoWatcher(QsubInfoWatcher):
    """With PBS's job history off, a job that has ended is gone at once."""

    unknown: ClassVar[Info] = {
        "State": "FAILED",
        "Reason": "PBS does not know how it ended (is its job history on?), and it left no result",
    }

    def __init__(self, delay_s: int = 60) -> None:
        super().__init__(delay_s)
        self._asked: dict[str, str] = {}

    def update(self) -> None:
        """As submitit's; but a job that PBS has forgotten, which ends qstat with an error, must
        not hide the others."""
        if (command := self._make_command()) is None:
            return
        self._num_calls += 1
        self._last_status_check = time.time()
        if (answer := self._ask(command)) is None:
            return
        self._output = answer.encode()
        self._info_dict.update(self.read_info(answer))
        asked = self._registered - self._finished
        self._finished.update(job_id for job_id in asked if self.is_done(job_id, mode="cache"))

    def _ask(self, command: list[str]) -> str | None:
        """What qstat says; None if it cannot answer. A server without history is asked again for
        the jobs that it still has."""
        done = _run(command)
        if done is not None and qstat.lacks_history(done.stderr):
            done = _run(qstat.command(list(self._asked.values()), history=False))
        return None if done is None else done.stdout

    def _make_command(self) -> list[str] | None:
        asked = self._registered - self._finished
        self._asked = {job_id: current_id(self._paths[job_id]) for job_id in sorted(asked)}
        return qstat.command(list(self._asked.values())) if asked else None

    def read_info(self, string: bytes | str) -> dict[str, Info]:
        """From the answer of qstat to the last command made."""
        text = string if isinstance(string, str) else string.decode()
        try:
            records = qstat.read(text) if text.strip() else {}
        except qstat.QstatError as error:
            logger.get_logger().warning(str(error))
            return {}
        return {
            job_id: self._info(job_id, records.get(pbs_id))
            for job_id, pbs_id in self._asked.items()
        }

    def _info(self, job_id: str, record: qstat.Record | None) -> Info:
        if record is None:
            return self._without_record(job_id)
        info = verdict.info(job_id, record)
        if info["PbsState"] in ("F", "X"):
            if current_id(self._paths[job_id]) != self._asked[job_id]:
                # It submitted the job that goes on with its work after the question was made.
                return {"JobID": job_id, "State": "REQUEUED"}
            if info["State"] in ("COMPLETED", "UNKNOWN") and verdict.was_deleted(record):
                done = self._paths[job_id].result_pickle.exists()
                return info | ({"State": "COMPLETED"} if done else DELETED)
            if info["State"] == "UNKNOWN":
                return self._without_record(job_id)
        self._missing_since.pop(job_id, None)
        if info["State"] == "FAILED" and job_id in self.cancelled:
            return info | {"State": "CANCELLED", "Reason": f"deleted ({info['Reason']})"}
        return info


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """None if qstat cannot answer."""
    done = ask(command)
    if done is not None and done.returncode != 0 and "Unknown Job" not in done.stderr:
        logger.get_logger().warning(f"qstat failed: {done.stderr.strip()}")
        return None
    return done
