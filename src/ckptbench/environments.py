"""One virtual environment per framework, made by uv from a lock."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ckptbench.digest import file_sha256
from ckptbench.errors import EnvironmentSetupError
from ckptbench.manifest import write_json

log = logging.getLogger("ckptbench")

READY = "ready.json"
TAIL_LINES = 15


def create_environment(lock: Path, constraints: Path, folder: Path) -> None:
    """Make `folder` a virtual environment that holds what `lock` lists and nothing else.

    `constraints` bind what is needed to build source distributions. `ready.json` in it, written last, names the
    lock's SHA-256: its content changes with the lock alone. Raises EnvironmentSetupError with uv's last lines.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        raise EnvironmentSetupError(
            "uv is not on the PATH: `make environment` installs it into .venv"
        )
    python = str(folder / "bin" / "python")
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], lock)
    _run(
        [uv, "pip", "sync", "--python", python, "--build-constraints", str(constraints), str(lock)],
        lock,
    )
    checksum = file_sha256(lock)
    write_json(folder / READY, {"lock": lock.name, "sha256": checksum})


def _run(command: list[str], lock: Path) -> None:
    done = subprocess.run(
        command,
        env=_environment(lock),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    log.info("%s", done.stdout.strip())
    if done.returncode:
        tail = "\n    ".join(done.stdout.strip().splitlines()[-TAIL_LINES:])
        raise EnvironmentSetupError(
            f"{lock}: uv could not install it (is there a network, and room on the disk?):\n    {tail}"
        )


def _environment(lock: Path) -> dict[str, str]:
    """uv does not read pip's settings: what the user told pip about wheels is handed on.

    PyPI's PyTorch is the CUDA build, which needs gigabytes that a CPU study never loads: unless the user names
    wheels, uv takes PyTorch's own CPU build. The versions are the lock's either way.
    """
    environment = dict(os.environ)
    if lock.stem.endswith("-cuda"):
        return environment  # its wheels are PyPI's
    if find_links := os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS"):
        environment["UV_FIND_LINKS"] = find_links
    else:
        environment.setdefault("UV_TORCH_BACKEND", "cpu")
    return environment
