"""Makes the virtual environment of a framework from its lock file, with uv."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ckptbench.common.errors import EnvironmentSetupError, RunFolderError
from ckptbench.common.files import file_sha256, read_json, write_json
from ckptbench.common.processes import die_with_parent
from ckptbench.inputs.environments.folder import FIRST_PYTHON, READY, clear_away, locked
from ckptbench.inputs.environments.horovod import RECIPE, HorovodBuild
from ckptbench.inputs.environments.interpreter import (
    find_interpreter,
    how_to_get,
    interpreter_for,
)
from ckptbench.inputs.environments.lock_file import pinned, pinned_sha256, python_of, read_lock

log = logging.getLogger("ckptbench")

WHEELS = "wheels"
"""Folder beside the environments. It holds the wheels that are compiled here, for all locks."""
TAIL_LINES = 15
CONSTRAINTS = "constraints"


def create_environment(lock: Path, constraints: Path, folder: Path) -> None:
    """Make `folder` a virtual environment with the packages that `lock` lists, and no others.

    `constraints` fix the versions of packages that are needed to build source distributions. Every file that is
    installed must have a hash that `lock` or `constraints` lists. Horovod has its own recipe
    (`environments.horovod`). `ready.json` is written last; it says what the environment was made from. Raises
    EnvironmentSetupError: with uv's last lines if uv failed; if the lock's Python is not on this machine; if another
    process is making the same environment.
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
    python = interpreter_for(lock, python_of(lock))
    clear_away(folder, first=READY)
    _run([uv, "venv", "--quiet", "--clear", "--python", str(python), str(folder)], lock)
    installer = _Installer(uv, lock, constraints, folder)
    if build is None:
        installer.install(read_lock(lock))
    else:
        _install_with_horovod(build, installer)
    write_json(folder / READY, described(lock, constraints))


def described(lock: Path, constraints: Path) -> dict[str, Any]:
    """What an environment that is made now would have as its `ready.json`."""
    ready = {"lock": lock.name, "sha256": pinned_sha256(lock)}
    if (python := python_of(lock)) != FIRST_PYTHON:
        ready["python"] = python
    if re.search(r"^horovod==", pinned(lock), re.MULTILINE):
        ready["recipe"] = RECIPE.revision
    return {**ready, CONSTRAINTS: file_sha256(constraints)}


def changes(folder: Path, wanted: Mapping[str, Any]) -> list[str]:
    """The fields in which the environment at `folder` differs from `wanted`. Empty too where there is none."""
    try:
        ready = read_json(folder / READY)
    except RunFolderError:
        return [READY] if (folder / READY).exists() else []
    # Environments of older versions do not say what they were built with.
    ready = {CONSTRAINTS: wanted.get(CONSTRAINTS), "python": FIRST_PYTHON, **ready}
    wanted = {"python": FIRST_PYTHON, **wanted}
    return [name for name, value in wanted.items() if ready.get(name) != value]


def obstacle(lock: Path, constraints: Path, folder: Path) -> str | None:
    """What this machine has not, that making the environment takes, and how to get it. None: nothing, or it is made."""
    if (folder / READY).exists() and not changes(folder, described(lock, constraints)):
        return None
    version = python_of(lock)
    if find_interpreter(version) is None:
        return f"Python {version}: {how_to_get(version)}"
    build = HorovodBuild.needed_by(lock, folder.parent / WHEELS)
    return build.missing_tools() if build and build.wheel() is None else None


@dataclass(frozen=True, slots=True)
class _Installer:
    uv: str
    lock: Path
    constraints: Path
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self, packages: Mapping[str, str]) -> None:
        """Have the environment hold these packages, and no others. The values are lines as `read_lock` gives them."""
        requirements = self.folder / "requirements.txt"
        lines = [*{**packages, **self._build_of_torch(packages)}.values(), ""]
        requirements.write_text("\n".join(lines), encoding="utf-8")
        # Compiled now: otherwise the first runs would compile what they import, and be timed doing so.
        command = [
            *(self.uv, "pip", "sync", "--compile-bytecode", "--python", str(self.python)),
            *("--require-hashes", "--require-build-hashes"),
            *("--build-constraints", str(self.constraints)),
            *("--preview-features", "build-dependency-hashes"),  # else uv warns of the new option
            str(requirements),
        ]
        _run(command, self.lock)

    def _build_of_torch(self, packages: Mapping[str, str]) -> dict[str, str]:
        """PyTorch's line, if there is one, with the label of the build that uv finds, such as `2.13.0+cpu`.

        The lock has no label, and uv installs that build all the same, but it looks for a hash under the whole version.
        """
        if "torch" not in packages:
            return {}
        locked, *hashes = packages["torch"].split(" ", 1)
        options = ["--quiet", "--no-deps", "--python", str(self.python)]
        command = [self.uv, "pip", "compile", *options, "-"]
        found = re.search(r"^torch==\S+", _run(command, self.lock, locked), re.MULTILINE)
        return {"torch": " ".join([found[0] if found else locked, *hashes])}


def _install_with_horovod(build: HorovodBuild, installer: _Installer) -> None:
    """Install the lock. If Horovod's wheel is missing, compile it first, in the same environment.

    The packages that compiling needs are removed again.
    """
    wheel = build.wheel()
    if wheel is None:
        installer.install(build.packages_to_compile())
        log.info("%s: compiling Horovod, which takes some minutes", build.lock)
        wheel = build.compile(installer.python)
    installer.install(build.packages(wheel))


def _run(command: list[str], lock: Path, given: str = "") -> str:
    """What uv has printed. It reads `given`."""
    done = subprocess.run(
        command,
        env=_environment(lock),
        input=given,
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
            f"{lock}: uv could not install it (exit status {done.returncode}):\n    {tail}"
        )
    return done.stdout


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
