"""Horovod's wheel, compiled from its source distribution for the framework of one lock.

Horovod 0.28.1 is the last release and older than the frameworks it is studied with: its source takes two edits. It is
compiled against the headers of one PyTorch or one TensorFlow, in the environment that holds it, and kept by the content
of the lock and by what the recipe says: as long as neither changes, it is compiled once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ckptbench.errors import EnvironmentSetupError

TAIL_LINES = 8
ERROR_LINES = 6
_ERROR = re.compile(r"\berror(:| at | \d)", re.IGNORECASE)
"""As g++, CMake and make say it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `old`, wherever it is in `file`; an edit that finds nothing is an error."""

    file: str
    """Its path in the source distribution."""
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the wheel is made."""

    version: str
    source_sha256: str
    """Of the source distribution."""
    tools: tuple[str, ...]
    """What compiling needs from the package index beside the lock."""
    edits: tuple[Edit, ...]
    steps: int
    """Count it up with a change of this module that makes another wheel and shows in no other field."""

    @property
    def revision(self) -> str:
        """16 hex digits that change with anything said here."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]


RECIPE = Recipe(
    version="0.28.1",
    source_sha256="92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0",
    # CMake 4 refuses the policies that the source's own copy of gloo asks for.
    tools=("cmake==3.31.10", "pip==26.3", "wheel==0.48.0"),
    edits=(
        # The headers of PyTorch 2 are C++17.
        Edit("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
        Edit(
            "horovod/torch/CMakeLists.txt",
            "set(CMAKE_CXX_STANDARD 14)",
            "set(CMAKE_CXX_STANDARD 17)",
        ),
        # Optional operations for XLA, whose interface has changed since.
        Edit(
            "horovod/tensorflow/CMakeLists.txt",
            'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n',
            "",
        ),
    ),
    steps=1,
)


@dataclass(frozen=True, slots=True)
class HorovodBuild:
    """The wheel for one lock, in the folder `cache`, where the wheels of all locks are."""

    lock: Path
    cache: Path
    recipe: Recipe = RECIPE

    @classmethod
    def needed_by(cls, lock: Path, cache: Path) -> HorovodBuild | None:
        """None where `lock` does not list Horovod. Raises EnvironmentSetupError for a version without recipe."""
        listed = re.search(r"^horovod==(\S+)$", lock.read_text(encoding="utf-8"), re.MULTILINE)
        if listed is None:
            return None
        if listed[1] != RECIPE.version:
            raise EnvironmentSetupError(
                f"{lock} lists horovod=={listed[1]}: only {RECIPE.version} can be compiled "
                "(the recipe is in src/ckptbench/horovod_build.py)"
            )
        return cls(lock, cache)

    @property
    def folder(self) -> Path:
        """Where the finished wheel is."""
        content = self.lock.read_bytes() + self.recipe.revision.encode()
        return self.cache / f"{self.lock.stem}-{hashlib.sha256(content).hexdigest()[:16]}"

    def wheel(self) -> Path | None:
        """The finished wheel; None where it is still to be made."""
        return next(self.folder.glob("*.whl"), None)

    def check_machine(self) -> None:
        """Raises EnvironmentSetupError that names all that this machine lacks for compiling."""
        named = shlex.split(os.environ.get("CXX", ""))[:1]
        compiler = named or ["c++", "g++", "clang++"]
        present = {
            f"{named[0]} (the variable CXX)" if named else "C++ compiler (g++)": any(
                map(shutil.which, compiler)
            ),
            "make": shutil.which("make"),
            "Python.h (python3.11-dev)": Path(sysconfig.get_path("include"), "Python.h").exists(),
            "CUDA toolkit (nvcc)": shutil.which("nvcc") or not self._for_gpus,
        }
        if missing := [what for what, found in present.items() if not found]:
            raise EnvironmentSetupError(
                f"{self.lock}: Horovod is compiled on this machine, where there is no {' and no '.join(missing)}: "
                "install what is missing and put it on the PATH, or take the frameworks that begin "
                "with `horovod_` out of the config: the others need none of it"
            )

    def requirements_to_compile(self) -> str:
        """What the environment must hold while Horovod is compiled in it, as a file of requirements."""
        locked = self.lock.read_text(encoding="utf-8").splitlines()
        named = {re.split("[=<>~ ]", tool)[0] for tool in self.recipe.tools} | {"horovod"}
        kept = [line for line in locked if line.partition("==")[0] not in named]
        return "\n".join([*kept, *self.recipe.tools, ""])

    def requirements(self, wheel: Path) -> str:
        """The lock with this wheel in Horovod's line."""
        locked = self.lock.read_text(encoding="utf-8")
        return locked.replace(
            f"horovod=={self.recipe.version}\n", f"horovod @ {wheel.absolute().as_uri()}\n"
        )

    def compile(self, python: Path) -> Path:
        """Make the wheel in the environment of the interpreter `python`; it takes minutes.

        It appears in its folder as a whole or not at all. Raises EnvironmentSetupError with what the compiler said.
        """
        draft = self.folder.with_suffix(".partial")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        source = self._fetched(python, draft)
        for edit in self.recipe.edits:
            apply_edit(edit, source)
        command = [*_pip(python), "wheel", "--verbose", "--no-deps", "--no-build-isolation"]
        self._run([*command, "--wheel-dir", str(draft), str(source)], draft, self._settings(python))
        shutil.rmtree(source)
        shutil.rmtree(self.folder, ignore_errors=True)  # of one without a wheel, nothing is of use
        draft.rename(self.folder)
        return next(self.folder.glob("*.whl"))

    def _fetched(self, python: Path, draft: Path) -> Path:
        """The source, unpacked; by pip, which goes by the user's settings of it and checks the digest."""
        asked = draft / "source.txt"
        asked.write_text(
            f"horovod=={self.recipe.version} --hash=sha256:{self.recipe.source_sha256}\n",
            encoding="utf-8",
        )
        options = ["--no-deps", "--no-build-isolation", "--no-binary", "horovod"]
        command = [*_pip(python), "download", "--require-hashes", *options]
        self._run([*command, "--dest", str(draft), "--requirement", str(asked)], draft, {})
        name = f"horovod-{self.recipe.version}"
        archive = draft / f"{name}.tar.gz"
        with tarfile.open(archive) as packed:
            packed.extractall(draft, filter="data")
        archive.unlink()
        return draft / name

    @property
    def _for_gpus(self) -> bool:
        return self.lock.stem.endswith("-cuda")

    def _settings(self, python: Path) -> dict[str, str]:
        """What Horovod's own build reads from the environment."""
        with_torch = re.search("^torch==", self.lock.read_text(encoding="utf-8"), re.MULTILINE)
        settings = {
            "HOROVOD_WITH_PYTORCH" if with_torch else "HOROVOD_WITHOUT_PYTORCH": "1",
            "HOROVOD_WITHOUT_TENSORFLOW" if with_torch else "HOROVOD_WITH_TENSORFLOW": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
            "HOROVOD_WITHOUT_MPI": "1",
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_CMAKE": str(python.parent / "cmake"),
            "CMAKE_GENERATOR": "Unix Makefiles",
            # Whatever a make says that this runs under: its jobs are not ours.
            "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
        }
        return settings | ({"HOROVOD_GPU_OPERATIONS": "NCCL"} if self._for_gpus else {})

    def _run(self, command: list[str], draft: Path, settings: Mapping[str, str]) -> None:
        log = draft / "build.log"
        with log.open("ab") as output:
            done = subprocess.run(
                command,
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            said = "\n    ".join(_telling_lines(log))
            raise EnvironmentSetupError(
                f"{self.lock}: Horovod could not be compiled; the whole log is {log}, which says:\n    {said}"
            )


def apply_edit(edit: Edit, source: Path) -> None:
    """Raises EnvironmentSetupError where the file has nothing to edit: it is not the source that the recipe is for."""
    path = source / edit.file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if edit.old not in text:
        raise EnvironmentSetupError(
            f"{path} has no `{edit.old.strip()}` to edit: it is not the source that the recipe in "
            "src/ckptbench/horovod_build.py is for"
        )
    path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def _telling_lines(log: Path) -> list[str]:
    """The first errors, which are far above the end, and the last lines."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [line.strip() for line in lines[:-TAIL_LINES] if _ERROR.search(line)]
    return [*errors[:ERROR_LINES], "...", *lines[-TAIL_LINES:]]


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
