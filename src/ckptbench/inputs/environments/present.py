"""An environment that is there: a module, venv, conda or container of the user, into which nothing is installed.

Its folder in `results/environments` holds a script `bin/python` that starts it, so that it is used as one that was made; a list of what it
has, in the form of a lock; and `ready.json`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ckptbench.common.errors import EnvironmentSetupError
from ckptbench.common.files import read_json, write_json
from ckptbench.common.versions import FOUND
from ckptbench.inputs.environments.folder import READY, clear_away
from ckptbench.inputs.environments.lock_file import pinned_sha256_of
from ckptbench.matrix.registry import IMPORTS

OLDEST = (3, 11)
"""The oldest Python in which ranks run: it is the first with `typing.Self` and `datetime.UTC`."""
SOURCE = Path(__file__).resolve().parents[3]
SECONDS_TO_START = 120
"""A container may be unpacked first."""
SITE_PATH = "CKPTBENCH_PYTHONPATH"
"""Where `make` hands on the PYTHONPATH that it keeps from its own commands."""
INSIDE = "CKPTBENCH_INSIDE"
"""Set in a container: a rank that starts another process there must not enter the container once more."""
MPI = "mpi4py"
AS_FOUND = "environment"
"""The field of `ready.json` that says what was found."""
WHEELS = {"orbax": "orbax-checkpoint", "sklearn": "scikit-learn", "chainermn": "chainer"}
"""What to install for a module, where it has another name."""
# Any Python can read it, 2.7 too.
PROGRAM = """
import sys
print("Python %d.%d.%d" % sys.version_info[:3])
if sys.version_info >= OLDEST:
    from ckptbench.common.versions import show
    show(sys.argv[1:])
"""


@dataclass(frozen=True, slots=True)
class PresentEnvironment:
    """The command that starts the Python of the environment `name`: a program and its arguments."""

    name: str
    command: tuple[str, ...]
    is_entry: bool = False
    """Whether the command enters a container, or does something else before Python starts."""
    site_path: str = field(
        default_factory=lambda: os.environ.get(SITE_PATH) or os.environ.get("PYTHONPATH", "")
    )
    """The PYTHONPATH of the user's shell, which a module may have set for its packages."""
    executable: str = ""
    """Its Python, as it names itself: in a container it has another path. Known when it was found, as its `versions`."""
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_python(cls, name: str, python: str) -> Self:
        """`python` is a path, or a name on PATH. Raises EnvironmentSetupError."""
        found = python if os.sep in python else shutil.which(python)
        if found is None:
            raise EnvironmentSetupError(
                f"no program {python} is on PATH: load the module, or activate the environment, before Snakemake starts"
            )
        path = Path(found).absolute()
        if path.is_dir():
            raise EnvironmentSetupError(f"it is a folder: name the Python in it, as in {path}/bin/python")  # fmt: skip
        if not path.exists():
            raise EnvironmentSetupError(f"there is no such file {path}: correct the path")
        return cls(name, (str(path),))

    @property
    def lock(self) -> str:
        """All versions, in the form of a lock."""
        lines = (f"{name.replace(' ', '-')}=={version}" for name, version in self.versions.items())
        return "".join(f"{line}\n" for line in sorted(lines))

    @property
    def words(self) -> str:
        return shlex.join(self.command)

    def find(self, modules: Sequence[str]) -> Self:
        """The same with what it has. Raises EnvironmentSetupError where it does not start, is too old, or lacks one of the modules."""
        program = PROGRAM.replace("OLDEST", repr(OLDEST))
        path = os.pathsep.join(filter(None, (str(SOURCE), self.site_path)))
        variables = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        try:
            done = subprocess.run(
                [*self.command, "-c", program, *modules],
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=SECONDS_TO_START,
            )
        except OSError as error:
            raise EnvironmentSetupError(
                f"{self.command[0]} does not start ({error.strerror}): name a program that does, or load its module before Snakemake starts"
            ) from None
        except subprocess.TimeoutExpired:
            raise EnvironmentSetupError(
                f"{self.words} has not ended within {SECONDS_TO_START} s: name a command that starts Python and nothing else"
            ) from None
        return self._read(done.stdout, done.stderr, modules)

    def _read(self, printed: str, errors: str, modules: Sequence[str]) -> Self:
        oldest = ".".join(map(str, OLDEST))
        lines = printed.splitlines()
        version = next((line for line in lines if line.startswith("Python ")), None)
        shown = next((line for line in lines if line.startswith(FOUND)), None)
        last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
        if version is None:
            raise EnvironmentSetupError(
                f"{self.words} is not a Python ({last}): name the program that starts it"
            )
        if tuple(map(int, version.split()[1].split("."))) < OLDEST:
            raise EnvironmentSetupError(
                f"{self.words} is {version}, and ranks need {oldest} or newer: name another one, or leave the line out, "
                f"and the environment is made from envs/{self.name}.txt"
            )
        if shown is None:
            raise EnvironmentSetupError(
                f"{self.words} cannot import ckptbench from {SOURCE} ({last}): a container must see this folder "
                f"(apptainer exec --bind {SOURCE}), and PYTHONPATH must reach its Python"
            )
        found = json.loads(shown.removeprefix(FOUND))
        if found["missing"]:
            raise EnvironmentSetupError(self._lacks(found["missing"], found["executable"]))
        if MPI in modules and not self._mpiexec():
            raise EnvironmentSetupError(
                f"no mpiexec is beside {self.words}, nor on PATH: load the MPI with which its {MPI} was built"
            )
        versions = dict(sorted(found["versions"].items()))
        return dataclasses.replace(self, executable=found["executable"], versions=versions)

    def _lacks(self, missing: Sequence[str], executable: str) -> str:
        wheels = " ".join(dict.fromkeys(WHEELS.get(each, each) for each in missing))
        lacks = f"{self.words} has no {', '.join(missing)}"
        if executable == sys.executable:
            return f"{lacks}, as it is the Python of Snakemake itself: name the one that you train with"
        if {*missing} & {*IMPORTS.get(self.name, ())}:
            return f"{lacks}, so it is no environment of {self.name}: name one that is"
        pip = f"{self.words} -m pip install"
        return (
            f"{lacks}, which a study imports: {pip} {wheels}; or, where it cannot be changed, "
            f"{pip} --no-deps --target FOLDER {wheels}, and start Snakemake with PYTHONPATH=FOLDER"
        )

    def described(self) -> dict[str, Any]:
        """What of its `ready.json` makes it another one, once it was found."""
        return {"lock": lock_name(self.name), "sha256": pinned_sha256_of(self.lock)}

    def write(self, folder: Path) -> None:
        """Write its folder, once it was found. Raises EnvironmentSetupError where an older one cannot be removed."""
        clear_away(folder, first=READY)
        (folder / "bin").mkdir(parents=True)
        (folder / lock_name(self.name)).write_text(self.lock, encoding="utf-8")
        _write_script(folder / "bin/python", self._script())
        if mpiexec := self._mpiexec():
            _write_script(folder / "bin/mpiexec", [f'exec {shlex.quote(mpiexec)} "$@"'])
        write_json(folder / READY, {**self.described(), AS_FOUND: dataclasses.asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The one that was written. Raises RunFolderError where none was."""
        return cls.from_json(read_json(folder / READY)[AS_FOUND])

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**{**fields, "command": tuple(fields["command"])})

    def _script(self) -> list[str]:
        """It becomes the command, with the user's PYTHONPATH behind that of ranks, and without Snakemake's Python on PATH."""
        lines = []
        if self.is_entry:
            lines += [
                f'[ -z "${INSIDE}" ] || exec {shlex.quote(self.executable)} "$@"',
                f"export {INSIDE}=1",
            ]
        if self.site_path:
            lines += [
                f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{shlex.quote(self.site_path)}'
            ]
        own = shlex.quote(f"{Path(sys.executable).parent}{os.pathsep}")
        return [*lines, f"PATH=${{PATH#{own}}}", f'exec {shlex.join(self.command)} "$@"']

    def _mpiexec(self) -> str | None:
        """That beside its Python, or else on PATH: it must be of the MPI with which the environment was built."""
        near = Path(self.command[0]).with_name("mpiexec")
        return str(near) if not self.is_entry and near.exists() else shutil.which("mpiexec")


def lock_name(name: str) -> str:
    """The name of the list of what it has."""
    return f"{name}-present.txt"


def _write_script(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in ("#!/bin/sh", *lines)), encoding="utf-8")
    path.chmod(0o755)
