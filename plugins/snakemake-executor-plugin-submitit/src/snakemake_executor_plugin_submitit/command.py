"""What submitit runs on the node: the nested Snakemake, told to stop in time."""

import os
import shlex
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission

from . import lost_nodes, processes, requeues
from .requeues import Requeue

_POLL_SECONDS = (0.05, 0.5)
TERMINATED_STATUS = 143
MOST_LOST_NODES = 5
"""After the loss of so many a job is not requeued: perhaps it breaks them."""
EARLY_SECONDS = 75
"""How much too early Slurm may tell a job of its limit, which it looks at twice a minute."""


class CommandFailedError(RuntimeError):
    """The job's command ended with a status other than 0."""


class _CommandEndedError(Exception):
    """Raised out of checkpoint() into the running call: there is nothing left to requeue."""


class NestedCommand:
    """A shell command as a checkpointable submitit callable.

    Signals reach submitit's process alone. The one before the time limit (SIGUSR2 unless
    SUBMITIT_PREEMPT_SIGNAL says otherwise) makes submitit call `checkpoint`: the command gets
    SIGTERM, at most `stop_seconds` to end, and the job goes back to the queue. On a SIGTERM from
    the scheduler (pre-emption, cancellation) the command gets SIGTERM as well, and the job ends
    without a result: whether it runs again is then the scheduler's decision.

    Where the command fails and another node of the job answers no more, the job goes back to the queue as well.
    """

    def __init__(
        self,
        command: str,
        workdir: str,
        stop_seconds: int,
        runtime_min: int,
        lost: tuple[str, ...] = (),
    ) -> None:
        """`lost`: nodes that answered no more in earlier runs of the job."""
        self.command = command
        self.workdir = workdir
        self.stop_seconds = stop_seconds
        self.runtime_min = runtime_min
        self.lost = lost
        self._started = time.monotonic()
        self._newly_lost: tuple[str, ...] = ()
        self._terminated = False
        self._process: subprocess.Popen[bytes] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_terminated": False, "_process": None}

    def __call__(self) -> int:
        """Raises CommandFailedError, or SystemExit where the scheduler ended the command."""
        self._listen()
        self._started = time.monotonic()
        try:
            status = self._run()
        except _CommandEndedError:
            return 0
        if status and self._terminated:
            sys.exit(TERMINATED_STATUS)
        if status:
            name = signal.Signals(-status).name if status < 0 else ""
            how = f"the job's command ended with {f'signal {name}' if name else f'exit status {status}'}"
            if lost := self._silent_nodes():
                how = f"{how}; no answer from {', '.join(lost)}"
                self._run_again_without(lost)
            raise CommandFailedError(how)
        return status

    def checkpoint(self) -> DelayedSubmission:
        """Stops the command and gives back what the requeued job shall run."""
        margin_seconds = min(10.0, 0.25 * self.stop_seconds)
        processes.stop(os.getpid(), self.stop_seconds - margin_seconds)
        if self._process is not None and _ended(self._process) and self._process.wait() == 0:
            raise _CommandEndedError
        requeues.note(JobEnvironment().paths, self._why)
        return DelayedSubmission(
            NestedCommand(
                self.command, self.workdir, self.stop_seconds, self.runtime_min, self.lost
            )
        )

    @property
    def _why(self) -> Requeue:
        if self._newly_lost:
            return Requeue("lost", self._newly_lost)
        until_told = 60 * self.runtime_min - self.stop_seconds
        ran = time.monotonic() - self._started
        return Requeue("limit" if ran >= until_told - EARLY_SECONDS else "preempted")

    def _silent_nodes(self) -> tuple[str, ...]:
        environment = JobEnvironment()
        return lost_nodes.silent(environment.name(), list(environment.hostnames))

    def _run_again_without(self, nodes: tuple[str, ...]) -> None:
        """Raises what submitit raises to end a job that it has requeued; returns where the job has lost too many."""
        if len(self.lost) + len(nodes) > MOST_LOST_NODES:
            return
        self.lost, self._newly_lost = (*self.lost, *nodes), nodes
        environment = JobEnvironment()
        try:
            signal.raise_signal(environment._usr_sig())
        finally:
            lost_nodes.leave_out(environment.name(), environment.job_id, nodes)

    def _listen(self) -> None:
        """Only where submitit itself does no more than note the signal."""
        handler = signal.getsignal(signal.SIGTERM)
        if getattr(handler, "__name__", "") == "bypass":
            signal.signal(signal.SIGTERM, self._forward_termination)

    def _run(self) -> int:
        """Waits without Popen.wait(), whose lock a signal handler that waits as well would
        never get."""
        self._process = _start(self.command, self.workdir)
        pause = _POLL_SECONDS[0]
        while not _ended(self._process):
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS[1])
        return self._process.wait()

    def _forward_termination(self, signum: int, frame: FrameType | None) -> None:
        if not self._terminated:
            self._terminated = True
            processes.ask_to_stop(os.getpid(), processes.descendants(os.getpid()))


def check_argument(text: str, place: str, remedy: str = "Move it to another folder") -> None:
    """Raises WorkflowError for a text that a shell reads otherwise than Snakemake, which writes
    the arguments of a job's command as for Python."""
    written = repr(text)
    if "\\" in written or (written.startswith('"') and {"$", "`"} & {*text}):
        raise WorkflowError(
            f"{place} is {written}: Snakemake cannot write it into the command of a job, because of a backslash, "
            f"an invisible character, or a ' next to one of \"$`. {remedy}."
        )


def _start(command: str, workdir: str) -> "subprocess.Popen[bytes]":
    """In this process group, so that a scheduler that kills the group leaves nothing; deaf to
    the user signals, which schedulers send to every process of a job. The shell outlives a
    SIGTERM: it waits for the command, which has got one too, and hands on its status."""
    shell = f"trap '' USR1 USR2; trap : TERM; cd {shlex.quote(workdir)} || exit; {command}"
    environment = {key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"}
    return subprocess.Popen(["/bin/bash", "-c", shell], env=environment)


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    if process.returncode is not None:
        return True
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None
