"""A workflow that Snakemake runs through the submitit executor, watched from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from tests.cluster.commands import PATIENCE_S, poll

SECRET = "s3cr3t'\"$HOME, x=y\\"
LOOK = """
    envvars: "TOKEN"
    rule look:
        output: "found"
        resources: runtime=10, mem_mb=400
        run:
            import glob, os
            found = [len(os.environ["TOKEN"])]
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    found += [path] if b"s3cr" b"3t" in open(path, "rb").read() else []
                except OSError:
                    continue  # it has ended
            open(output[0], "w").write(f"{found}")
    """
"""Writes how long a declared variable is, and in which commands on the node it stands."""


def look_for_secret(folder: Path, cluster: str, *options: str) -> None:
    """That a job has a declared variable, and that its value is in no command, file or line, whoever looks."""
    workflow = Workflow(folder, LOOK, cluster)
    assert workflow.run(*options, environment={"TOKEN": SECRET}) == 0, workflow.text()
    assert (folder / "found").read_text() == f"[{len(SECRET)}]"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"s3cr3t" in path.read_bytes()] == []
    (run,) = (folder / ".snakemake" / "submitit").glob("2*")
    assert run.stat().st_mode & 0o777 == 0o700


class Workflow:
    """One folder and one Snakefile; each `start` is a Snakemake of its own."""

    def __init__(self, folder: Path, snakefile: str, cluster: str = "slurm") -> None:
        self.folder = folder
        self.cluster = cluster
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "Snakefile").write_text(textwrap.dedent(snakefile))
        self.log = folder / "snakemake.log"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *options: str,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        """In a session of its own, as from a terminal that nothing else uses. `output`: in place of the log."""
        command = [sys.executable, "-m", "snakemake", "--executor", "submitit"]
        command += ["--submitit-cluster", self.cluster, "--jobs", "2000", "--scheduler", "greedy"]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*command, *options],
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output or log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def run(
        self,
        *options: str,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> int:
        return self.wait(self.start(*options, environment=environment), timeout_s)

    def wait(self, process: subprocess.Popen[bytes], timeout_s: float = PATIENCE_S) -> int:
        """The exit status; the session is interrupted, as by Ctrl-C, where it takes too long."""
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            interrupt(process)
            process.wait(PATIENCE_S)
            raise AssertionError(f"not over after {timeout_s} s:\n{self.text()}") from None

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait_for_text(self, pattern: str, timeout_s: float = PATIENCE_S) -> str:
        self._wait_for(lambda: re.search(pattern, self.text()) is not None, pattern, timeout_s)
        match = re.search(pattern, self.text())
        assert match is not None
        return match.group(match.lastindex or 0)

    def wait_for_file(self, name: str, timeout_s: float = PATIENCE_S) -> None:
        self._wait_for((self.folder / name).exists, name, timeout_s)

    def _wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Until it is there, at most as long as Snakemake runs."""
        poll(lambda: self._is_over() or condition(), timeout_s, 0.2)
        assert condition(), f"no {what!r} within {timeout_s} s in:\n{self.text()}"

    def _is_over(self) -> bool:
        return bool(self._started) and self._started[-1].poll() is not None

    def job_ids(self) -> list[str]:
        """Of the jobs that were submitted, in order."""
        return re.findall(rf"was submitted: {self.cluster} job (\S+),", self.text())


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C: SIGINT to every process of the terminal's foreground group."""
    os.killpg(process.pid, signal.SIGINT)
