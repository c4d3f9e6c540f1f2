"""Makes the virtual environment of a framework from its lock file, with uv."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from ckptbench.environments.horovod import HorovodBuild
from ckptbench.environments.locking import locked
from ckptbench.environments.ready import READY, described
from ckptbench.errors import EnvironmentSetupError
from ckptbench.machine.files import write_json
from ckptbench.world.processes import die_with_parent

log = logging.getLogger("ckptbench")

WHEELS = "wheels"
"""Folder beside the environments. It holds the wheels that are compiled here, for all locks."""
TAIL_LINES = 15


def create_environment(lock: Path, constraints: Path, folder: Path) -> None:
    """Make `folder` a virtual environment with the packages that `lock` lists, and no others.

    `constraints` fix the versions of packages that are needed to build source distributions. Horovod has its own
    recipe (`environments.horovod`). `ready.json` is written last; it says what the environment was made from. Raises EnvironmentSetupError, with uv's last lines if uv failed, or if
    another process is making the same environment.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        raise EnvironmentSetupError(
            "uv is not on the PATH: `make environment` installs it into .venv"
        )
    with locked(folder):
        _make(uv, lock, constraints, folder)


def _make(uv: str, lock: Path, constraints: Path, folder: Path) -> None:
    build = HorovodBuild.needed_by(lock, folder.parent / WHEELS)
    if build is not None and build.wheel() is None:
        build.check_machine()
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], lock)
    python = folder / "bin" / "python"
    # Compiled now: otherwise the first runs would compile what they import, and be timed doing so.
    sync = [
        *(uv, "pip", "sync", "--compile-bytecode", "--python", str(python)),
        *("--build-constraints", str(constraints)),
    ]
    if build is None:
        _run([*sync, str(lock)], lock)
    else:
        _install_with_horovod(build, python, sync)
    write_json(folder / READY, described(lock, constraints))


def _install_with_horovod(build: HorovodBuild, python: Path, sync: list[str]) -> None:
    """Install the lock. If Horovod's wheel is missing, compile it first, in the same environment.

    The packages that compiling needs are removed again.
    """
    requirements = python.parents[1] / "requirements.txt"
    wheel = build.wheel()
    if wheel is None:
        requirements.write_text(build.requirements_to_compile(), encoding="utf-8")
        _run([*sync, str(requirements)], build.lock)
        log.info("%s: compiling Horovod, which takes some minutes", build.lock)
        wheel = build.compile(python)
    requirements.write_text(build.requirements(wheel), encoding="utf-8")
    _run([*sync, str(requirements)], build.lock)


def _run(command: list[str], lock: Path) -> None:
    done = subprocess.run(
        command,
        env=_environment(lock),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    log.info("%s", done.stdout.strip())
    if done.returncode:
        tail = "\n    ".join(done.stdout.strip().splitlines()[-TAIL_LINES:])
        raise EnvironmentSetupError(
            f"{lock}: uv could not install it (is there a network, and room on the disk?):\n    {tail}"
        )


def _environment(lock: Path) -> dict[str, str]:
    """The environment variables for uv, which decide where wheels come from. The lock alone decides the versions.

    uv does not read pip's settings, so PIP_FIND_LINKS is passed on as UV_FIND_LINKS. If neither is set, uv takes
    PyTorch's CPU build from PyTorch's own index: the build on PyPI is for CUDA and has gigabytes that a CPU study
    never loads.
    """
    environment = dict(os.environ)
    if lock.stem.endswith("-cuda"):
        return environment  # wheels for CUDA come from PyPI
    if find_links := os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS"):
        environment["UV_FIND_LINKS"] = find_links
    else:
        environment.setdefault("UV_TORCH_BACKEND", "cpu")
    return environment
