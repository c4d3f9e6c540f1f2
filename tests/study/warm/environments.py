"""Warm environments: a folder like `.environments` whose interpreters ask a server that has imported the framework.

The servers end with this process.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from ckptbench.matrix.registry import FRAMEWORKS

from .client import LOG, SERVER

ROOT = Path(__file__).resolve().parents[3]
COLD = ROOT / ".environments"
"""The real environments."""
HERE = Path(__file__).parent


@functools.cache
def warm_environments() -> Path:
    """The folder, with those frameworks whose real environment is ready."""
    # Not pytest's own folder: its path is too long for a Unix socket.
    folder = Path(tempfile.mkdtemp(prefix="ckptbench-warm-"))
    servers = [_warm(folder, name) for name in FRAMEWORKS if (COLD / name / "ready.json").exists()]
    for name in ("data", "wheels"):
        (folder / name).symlink_to(COLD / name)
    atexit.register(_end, folder, servers)
    return folder


def _warm(folder: Path, framework: str) -> subprocess.Popen[bytes]:
    """Lay out one environment and start its server."""
    cold, warm = COLD / framework, folder / framework
    programs = warm / "bin"
    programs.mkdir(parents=True)
    shutil.copy2(cold / "ready.json", warm)  # as old as the real one, so that the workflow keeps it
    interpreter = programs / "python"
    client = HERE.joinpath("client.py").read_text("utf-8")
    interpreter.write_text(f"#!{sys.executable} -ISE\n{client}", "utf-8")
    interpreter.chmod(0o755)
    for program in (cold / "bin").iterdir():
        if not program.name.startswith("python"):
            (programs / program.name).symlink_to(
                program
            )  # mpiexec, and what it looks for beside it
    command = [cold / "bin" / "python", "-P", HERE / "server.py", framework]
    with (warm / LOG).open("wb") as log, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(warm / SERVER))
        listener.listen(64)
        return subprocess.Popen(
            [*map(str, command), str(listener.fileno()), str(os.getpid())],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _end(folder: Path, servers: list[subprocess.Popen[bytes]]) -> None:
    for server in servers:
        server.kill()
        server.wait()
    shutil.rmtree(folder, ignore_errors=True)
