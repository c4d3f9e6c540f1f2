"""Compiles Horovod's wheel from its source distribution, for the framework of one lock.

Horovod 0.28.1 is the last release. It is older than the frameworks with which it is studied, so its source needs a few
edits. The wheel is compiled against the headers of one version of PyTorch or TensorFlow, in the environment that holds
that version. The finished wheel is kept under a name that depends on the lock and the recipe, so it is compiled again
only when one of them changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ckptbench.common.errors import EnvironmentSetupError
from ckptbench.common.files import file_sha256
from ckptbench.common.processes import die_with_parent
from ckptbench.common.removal import try_to_remove
from ckptbench.inputs.environments.folder import clear_away
from ckptbench.inputs.environments.lock_file import pinned, read_lock, version_in

TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces every `old` in `file` by `new`. It is an error if there is none."""

    file: str
    """Path of the file in the source distribution."""
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The instructions for making the wheel."""

    version: str
    tools: tuple[str, ...]
    """Packages that compiling needs in addition to those of the lock. Lines of a requirements file, with hashes."""
    edits: tuple[Edit, ...]
    steps: int
    """Revision of the build steps in this module. Increase it when a change of them makes another wheel."""

    @property
    def revision(self) -> str:
        """16 hexadecimal digits that change when any field changes."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]


RECIPE = Recipe(
    version="0.28.1",
    # CMake 4 refuses the policies for which the source's own copy of gloo asks.
    # Each hash is that of the wheel for Linux x86-64.
    tools=(
        "cmake==3.31.10 --hash=sha256:2f766bb46367e5e0559fa33184653754bce044583a06014dcaebf8e6dff8a1f1",
        "pip==26.3 --hash=sha256:f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13",
        "wheel==0.48.0 --hash=sha256:3217dcc807155e45db462d7ef2431f5ddda0d7273b700d05a67b271ceb1287ab",
    ),
    edits=(
        # The headers of PyTorch 2 need C++17.
        Edit("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
        Edit(
            "horovod/torch/CMakeLists.txt",
            "set(CMAKE_CXX_STANDARD 14)",
            "set(CMAKE_CXX_STANDARD 17)",
        ),
        # Leaves out optional operations for XLA: its interface has changed since Horovod's last release.
        Edit(
            "horovod/tensorflow/CMakeLists.txt",
            'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n',
            "",
        ),
        # Without debug information, which nobody reads, it is compiled in two thirds of the time.
        Edit("setup.py", "else 'RelWithDebInfo'", "else 'Release'"),
    ),
    steps=1,
)


@dataclass(frozen=True, slots=True)
class HorovodBuild:
    """The wheel for one lock. The folder `cache` holds the wheels of all locks."""

    lock: Path
    cache: Path
    recipe: Recipe = RECIPE

    @classmethod
    def needed_by(cls, lock: Path, cache: Path) -> HorovodBuild | None:
        """The build for `lock`. None: `lock` does not list Horovod.

        Raises EnvironmentSetupError for a version that has no recipe.
        """
        packages = read_lock(lock)
        if "horovod" not in packages:
            return None
        if (version := version_in(packages["horovod"])) != RECIPE.version:
            raise EnvironmentSetupError(
                f"{lock} lists horovod=={version}: only {RECIPE.version} can be compiled "
                "(the recipe is in src/ckptbench/inputs/environments/horovod.py)"
            )
        return cls(lock, cache)

    @property
    def folder(self) -> Path:
        """The folder of the finished wheel."""
        content = (pinned(self.lock) + self.recipe.revision).encode()
        return self.cache / f"{self.lock.stem}-{hashlib.sha256(content).hexdigest()[:16]}"

    def wheel(self) -> Path | None:
        """The finished wheel. None: it is not compiled yet."""
        return next(self.folder.glob("*.whl"), None)

    def missing_tools(self) -> str | None:
        """What compiling needs and PATH does not have. None: all is there."""
        programs = {
            "a C++ compiler": (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"),
            "make": ("make",),
            **({"nvcc": ("nvcc",)} if self._for_gpus else {}),
        }
        missing = [name for name, each in programs.items() if not any(map(shutil.which, each))]
        return f"{' and '.join(missing)} on PATH, to compile Horovod" if missing else None

    def packages_to_compile(self) -> dict[str, str]:
        """The packages that the environment must hold while Horovod is compiled in it: name and line of each."""
        tools = {tool.partition("==")[0]: tool for tool in self.recipe.tools}
        packages = read_lock(self.lock) | tools
        del packages["horovod"]
        return packages

    def packages(self, wheel: Path) -> dict[str, str]:
        """Those of the lock, with this wheel in Horovod's line."""
        made = f"horovod @ {wheel.absolute().as_uri()} --hash=sha256:{file_sha256(wheel)}"
        return read_lock(self.lock) | {"horovod": made}

    def compile(self, python: Path) -> Path:
        """Make the wheel in the environment of the interpreter `python`. This takes minutes.

        The wheel appears in its folder complete or not at all. Raises EnvironmentSetupError with the end of the log.
        """
        draft = self.folder.with_suffix(".partial")
        clear_away(draft)
        draft.mkdir(parents=True)
        source = self._fetched(python, draft)
        for edit in self.recipe.edits:
            apply_edit(edit, source)
        command = [*_pip(python), "wheel", "--verbose", "--no-deps", "--no-build-isolation"]
        self._run([*command, "--wheel-dir", str(draft), str(source)], draft, self._settings(python))
        try_to_remove(source)  # it is of no more use, and in nobody's way
        clear_away(self.folder)  # a folder without a wheel is of no use
        draft.rename(self.folder)
        return next(self.folder.glob("*.whl"))

    def _fetched(self, python: Path, draft: Path) -> Path:
        """The unpacked source. pip downloads it, because pip reads the user's settings and checks the lock's hash."""
        asked = draft / "source.txt"
        asked.write_text(read_lock(self.lock)["horovod"] + "\n", encoding="utf-8")
        options = ["--no-deps", "--no-build-isolation", "--no-binary", "horovod"]
        command = [*_pip(python), "download", "--require-hashes", *options]
        self._run([*command, "--dest", str(draft), "--requirement", str(asked)], draft, {})
        name = f"horovod-{self.recipe.version}"
        archive = draft / f"{name}.tar.gz"
        with tarfile.open(archive) as packed:
            # Python before 3.11.4, as of Debian 12, has no filters.
            packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            packed.extractall(draft)
        try_to_remove(archive)
        return draft / name

    @property
    def _for_gpus(self) -> bool:
        return self.lock.stem.endswith("-cuda")

    def _settings(self, python: Path) -> dict[str, str]:
        """The environment variables that Horovod's build reads."""
        with_torch = "torch" in read_lock(self.lock)
        settings = {
            "HOROVOD_WITH_PYTORCH" if with_torch else "HOROVOD_WITHOUT_PYTORCH": "1",
            "HOROVOD_WITHOUT_TENSORFLOW" if with_torch else "HOROVOD_WITH_TENSORFLOW": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
            "HOROVOD_WITHOUT_MPI": "1",
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_CMAKE": str(python.parent / "cmake"),
            "CMAKE_GENERATOR": "Unix Makefiles",
            # If a make has started this process, its number of jobs must not apply here.
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
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        if done.returncode:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            said = "\n    ".join(lines[-TAIL_LINES:])
            raise EnvironmentSetupError(
                f"{self.lock}: Horovod could not be compiled, for which a C++ compiler, make and Python.h are needed (with CUDA: "
                f"nvcc); the whole log is {log}, which ends with:\n    {said}"
            )


def apply_edit(edit: Edit, source: Path) -> None:
    """Apply `edit` to the source folder. Raises EnvironmentSetupError if the file does not contain `edit.old`."""
    path = source / edit.file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if edit.old not in text:
        raise EnvironmentSetupError(
            f"{path} has no `{edit.old.strip()}` to edit: it is not the source that the recipe in "
            "src/ckptbench/inputs/environments/horovod.py is for"
        )
    path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
