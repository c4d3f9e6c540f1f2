"""Daemons that outlive the command that started them, and what else a scheduler leaves running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.commands import PATIENCE_S, ClusterError, poll

LOG_LINES_SHOWN = 15
CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": str(Path.home()),
    "LANG": "C.UTF-8",
}
"""What a daemon has at boot: nothing of the shell that happens to start it reaches its jobs."""


@dataclass(frozen=True)
class Process:
    """A process on this machine. Its start tells it from a later one that got the same id."""

    name: str
    pid: int
    start_ticks: int | None

    def alive(self) -> bool:
        return self.start_ticks is not None and start_ticks(self.pid) == self.start_ticks

    def end(self, grace_s: float) -> None:
        """Ask it to end, and kill it after `grace_s`."""
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, PATIENCE_S)):
            if self.alive():
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(self.pid, number)
                poll(lambda: not self.alive(), patience_s)


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


class Daemons:
    """The daemons of one cluster: a log each, and a record of them in the cluster's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def log(self, name: str) -> Path:
        return self.folder / "log" / f"{name}.log"

    def running(self) -> list[Process]:
        """Those that still run, in the order in which they were started."""
        try:
            records = json.loads(self._record().read_text())
        except FileNotFoundError:
            return []
        return [process for record in records if (process := Process(**record)).alive()]

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Process:
        """Start `command`, which must stay in the foreground, in a session of its own."""
        with self.log(name).open("ab") as log:
            child = subprocess.Popen(
                command,
                env={**CLEAN_ENVIRONMENT, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        self._children.append(child)
        process = Process(name, child.pid, start_ticks(child.pid))
        records = [asdict(known) for known in [*self.running(), process]]
        self._record().write_text(json.dumps(records, indent=1) + "\n")
        return process

    def wait_for(
        self, process: Process, missing: Callable[[], str], timeout_s: float = PATIENCE_S
    ) -> None:
        """Wait until `missing` names nothing; an error shows it and the end of the log."""
        deadline = time.monotonic() + timeout_s
        while what := missing():
            if not process.alive():
                raise ClusterError(f"{process.name} ended at once. {self.last_lines(process.name)}")
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{process.name} not ready after {timeout_s:.0f} s: {what}\n"
                    f"{self.last_lines(process.name)}"
                )
            time.sleep(0.05)

    def last_lines(self, name: str) -> str:
        log = self.log(name)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n  ".join([f"The end of its log {log.name}:", *lines[-LOG_LINES_SHOWN:]])

    def stop(self, grace_s: float = 3) -> None:
        """End all, the last one started first; what they have stored need not survive."""
        for process in reversed(self.running()):
            process.end(grace_s)
        for child in self._children:
            child.wait()
        self._record().unlink(missing_ok=True)

    def _record(self) -> Path:
        return self.folder / "processes.json"


def processes_with(variables: Mapping[str, str | None]) -> Iterator[Process]:
    """Other processes that hold all of `variables` in their environment; None is any value."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "environ").read_bytes().decode(errors="replace")
            program = (entry / "exe").readlink().name
        except OSError:
            continue
        held = dict(line.partition("=")[::2] for line in text.split("\0"))
        if all(name in held and value in (None, held[name]) for name, value in variables.items()):
            yield Process(program, int(entry.name), start_ticks(int(entry.name)))
