"""Finds the Python for which a lock was made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ckptbench.common.errors import EnvironmentSetupError
from ckptbench.inputs.environments.lock_file import OWN

SECONDS_TO_START = 30


def find_interpreter(version: str) -> Path | None:
    """An interpreter of this version (`3.12`), of CPython on this machine; None where there is none.

    It is the running one, or the first on PATH, of pyenv or of uv that starts. One that does not start is passed over:
    pyenv has a shim on PATH for each version, which starts only what its user has switched to.
    """
    if version == OWN:
        return Path(sys.executable)
    return next((path for path in _candidates(version) if _version_of(path) == version), None)


def interpreter_for(lock: Path, version: str) -> Path:
    """As `find_interpreter`. Raises EnvironmentSetupError, which says how to get it, where there is none."""
    if found := find_interpreter(version):
        return found
    raise EnvironmentSetupError(
        f"{lock} is for Python {version}, which is not on this machine: {how_to_get(version)}, or leave its frameworks out "
        "(matrix: {framework: available})"
    )


def how_to_get(version: str) -> str:
    return f"load it (module load python/{version}), or run `.venv/bin/uv python install {version}`"


def _candidates(version: str) -> Iterator[Path]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for name in (f"python{version}", "python3"):
            if os.access(path := Path(folder, name), os.X_OK) and not path.is_dir():
                yield path
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    yield from sorted((pyenv / "versions").glob(f"{version}.*/bin/python{version}"), reverse=True)
    data = Path(os.environ.get("XDG_DATA_HOME", "~/.local/share")).expanduser() / "uv/python"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", data))
    yield from sorted(uv.glob(f"cpython-{version}.*/bin/python{version}"), reverse=True)


def _version_of(path: Path) -> str:
    """The version that it prints, if it is CPython; empty where it does not start."""
    program = "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [path, "-I", "-c", program],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_TO_START,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    name, _, version = done.stdout.strip().partition(" ")
    return version if name == "cpython" else ""
