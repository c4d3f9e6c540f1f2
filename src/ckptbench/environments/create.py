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
from ckptbench.horovod_build import HorovodBuild
from ckptbench.manifest import write_json

log = logging.getLogger("ckptbench")

READY = "ready.json"
WHEELS = "wheels"
"""Beside the environments: the wheels that are compiled here, of all locks."""
TAIL_LINES = 15


def create_environment(lock: Path, constraints: Path, folder: Path) -> None:
    """Make `folder` a virtual environment that holds what `lock` lists and nothing else.

    `constraints` bind what is needed to build source distributions; Horovod has a recipe of its own
    (`horovod_build`). `ready.json` in it, written last, names the lock's SHA-256 and the recipe's revision: its content
    changes with these alone. Raises EnvironmentSetupError with uv's last lines.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        raise EnvironmentSetupError(
            "uv is not on the PATH: `make environment` installs it into .venv"
        )
    build = HorovodBuild.needed_by(lock, folder.parent / WHEELS)
    if build is not None and build.wheel() is None:
        build.check_machine()
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], lock)
    python = folder / "bin" / "python"
    sync = [uv, "pip", "sync", "--python", str(python), "--build-constraints", str(constraints)]
    if build is None:
        _run([*sync, str(lock)], lock)
    else:
        _install_with_horovod(build, python, sync)
    ready = {"lock": lock.name, "sha256": file_sha256(lock)}
    write_json(
        folder / READY, ready if build is None else {**ready, "recipe": build.recipe.revision}
    )


def _install_with_horovod(build: HorovodBuild, python: Path, sync: list[str]) -> None:
    """Compiled where it is missing, in the environment that it is for; what compiling needs is taken out again."""
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
