"""What Slurm says of jobs: which wait or run, and how the others ended."""

import subprocess
from pathlib import Path

from submitit.slurm import slurm

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
QUERY_TIMEOUT_S = 120
_FIELDS = "JobID,State,ExitCode,Elapsed,Timelimit,NodeList"


class SlurmWatcher(slurm.SlurmInfoWatcher):
    """One sacct for all jobs; suspended and requeued jobs still count as active."""

    def _make_command(self) -> list[str] | None:
        ids = sorted({job_id.split("_")[0] for job_id in self._registered - self._finished})
        if not ids:
            return None
        # Without SLURM_BITSTR_LEN=0 the ids of a large pending array are cut short.
        return [
            *("env", "SLURM_BITSTR_LEN=0", "sacct", "--allocations", "--parsable2"),
            *(f"--format={_FIELDS}", f"--jobs={','.join(ids)}"),
        ]

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The state's name alone: `CANCELLED by 1000` is CANCELLED."""
        return super().get_state(job_id, mode).partition(" ")[0]

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        return self.get_state(job_id, mode).upper() not in ACTIVE


def was_killed(info: dict[str, str]) -> bool:
    """Whether it ended by the scheduler's doing: by its state, or because of a signal."""
    signum = info.get("ExitCode", "").partition(":")[2]
    return info["State"].partition(" ")[0] not in BY_ITSELF or signum not in ("", "0")


def ending_words(info: dict[str, str], log: str) -> str:
    """The state of a job that ended, with what the accounting and the node said about it."""
    details = f"exit code {info['ExitCode']}, after {info['Elapsed']} of {info['Timelimit']}"
    return f"{info['State']} ({details}, on {info['NodeList']}){log and f'; {log}'}"


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
    """What one of Slurm's commands prints; nothing where it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=QUERY_TIMEOUT_S
    )
    return done.stdout
