"""Start the user's command, hand signals on to it, and end as it does."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ckptbench_probe.syscalls import StraceRecorder
from ckptbench_probe.variables import FOLDER, RUN, task_of_slurm

ARMED = Path(__file__).resolve().parent / "armed"
HANDED_ON = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
SI_KERNEL = 0x80
"""Origin of a signal that the kernel sends, as a terminal's Ctrl-C, which goes to the command as well (siginfo.h)."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell."""


class CannotStartError(Exception):
    """The message is one line for the user."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def environment(given: Mapping[str, str], folder: Path, run: str) -> dict[str, str]:
    """In which every Python process arms itself."""
    paths = [str(ARMED), *filter(None, [given.get("PYTHONPATH")])]
    return {**given, "PYTHONPATH": os.pathsep.join(paths), FOLDER: str(folder), RUN: run}


def run_name() -> str:
    """Ranks that are measured by launchers of their own, one a task of Slurm, are one run."""
    if task_of_slurm(os.environ):
        return f"slurm-{os.environ['SLURM_JOB_ID']}-{os.environ['SLURM_STEP_ID']}"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def words_of(command: list[str]) -> list[str]:
    """Without the -- that a user writes before it."""
    return command[1:] if command[:1] == ["--"] else command


def program_of(command: list[str], variables: Mapping[str, str]) -> str:
    """Raises CannotStartError."""
    program = shutil.which(command[0], path=variables.get("PATH"))
    if program is None:
        raise CannotStartError(
            f"{command[0]}: no such program: correct the command after --", NOT_FOUND
        )
    return program


def not_executable(program: str, error: OSError) -> CannotStartError:
    return CannotStartError(f"{program} cannot be started: {error.strerror}", NOT_EXECUTABLE)


def launch(
    command: list[str], variables: Mapping[str, str], strace: StraceRecorder | None = None
) -> int:
    """The exit status of the command, as `os.waitpid` gives it. Raises CannotStartError. Signals stay blocked: an impatient user's second one must not cut off the summary."""
    program = program_of(command, variables)
    if strace is not None:
        command = strace.around(command)
        program = shutil.which(command[0]) or command[0]
    heard = HANDED_ON | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    try:
        child = _start(program, command, dict(variables), before)
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise not_executable(program, error) from error
    status = _attend(child, heard)
    if strace is not None:
        strace.wait(child)
    return status


def _start(
    program: str, command: list[str], variables: dict[str, str], blocked: set[signal.Signals | int]
) -> int:
    """A script without a first line that names its shell is run by `sh`, as a shell does."""
    try:
        return os.posix_spawn(program, command, variables, setsigmask=blocked)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    return os.posix_spawn("/bin/sh", ["sh", program, *command[1:]], variables, setsigmask=blocked)


def _attend(child: int, heard: set[signal.Signals]) -> int:
    while True:
        found = signal.sigwaitinfo(heard)
        if found.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif found.si_code != SI_KERNEL:
            os.kill(child, found.si_signo)


def how_failed(status: int) -> str:
    """In words, as `exit code 2`. Empty where the command ended well."""
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}" if status else ""


def end_as(status: int) -> None:
    """End this process as the command has ended: by the same exit code or the same signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        _allow_no_core()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    sys.exit(os.WEXITSTATUS(status))


def _allow_no_core() -> None:
    """The command has left its own core; that of the launcher tells nothing."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
