"""The distributions, and the workflow's own environment, with each other Python of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from checkout import ROOT, Checkout
from selection import FULL

from ckptbench.inputs.environments.interpreter import find_interpreter
from ckptbench.inputs.environments.lock_file import OWN

PROJECTS = [ROOT, *(path.parent for path in sorted(ROOT.glob("p*/**/pyproject.toml")))]
"""The main distribution, the plugins and the probe."""
OTHERS = [each for each in ("3.11", "3.12", "3.13", "3.14") if each != OWN and find_interpreter(each)]  # fmt: skip
OLDER = [each for each in ("3.9", "3.10") if find_interpreter(each)]
"""Those that have only the probe."""
UV = Path(sys.executable).with_name("uv")
BUILD = ["--build-constraints", ROOT / "envs" / "build-constraints.txt"]
CASE = (
    "decide --gpus 256 --mtbf 14h --step 2.5s --blocking 60s --async 3s+90s --restart 8min --now 2h"
)
UNIT = [
    "tests/unit/test_decide_model.py",
    "tests/unit/test_table_files.py",
    "probe/tests/test_measures.py",
    "plugins/snakemake-executor-plugin-submitit/tests/test_settings.py",
    "plugins/submitit-gridengine/tests/test_gridengine_submission.py",
    "plugins/submitit-pbs/tests/test_pbs_submission.py",
    "plugins/submitit-qsub/tests/test_qsub.py",
]
"""Quick ones that read and write files and tables, and look into the standard library and Snakemake."""
IMPORT_ALL = """
import importlib, pkgutil, sys
for root in map(importlib.import_module, sys.argv[1:]):
    for module in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        try:
            if not module.name.endswith((".libcopying", ".__main__")):
                importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(error.name.partition(".")[0])
"""
"""It prints what is missing. `libcopying` is no extension of Python, though its file's name ends as that of one."""
FRAMEWORKS = {"chainer", "chainermn", "h5py", "horovod", "jax", "keras", "mpi4py", "orbax", "safetensors", "sklearn", "tensorflow", "torch", "torch_checkpointing", "torchft", "torchsnapshot"}  # fmt: skip


def run(*command: str | Path, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=ROOT, env={**kept, **variables}, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution by its name."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in PROJECTS:
        build = ["-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
        subprocess.run([sys.executable, *build], cwd=project, check=True, capture_output=True)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


def environment(folder: Path, version: str, lock: Path) -> Path:
    """The programs of one that has this Python and these packages. Nothing is compiled that is not used."""
    run(UV, "venv", "--quiet", "--python", find_interpreter(version) or "", folder / "environment")
    python = folder / "environment" / "bin" / "python"
    run(UV, "pip", "sync", "--quiet", "--require-hashes", *BUILD, "--python", python, lock)
    return python.parent


def install(python: Path, *wheels: Path) -> None:
    run(UV, "pip", "install", "--quiet", "--no-deps", "--python", python, *wheels)
    run(UV, "pip", "check", "--quiet", "--python", python)


def test_there_is_another_python() -> None:
    assert OTHERS, "the tests need two: `.venv/bin/uv python install 3.12`, or load one"


@pytest.mark.parametrize("version", OTHERS)
def test_everything_runs_with_another_python(
    version: str, wheels: dict[str, Path], tmp_path: Path
) -> None:
    """In the environment that `make PYTHON=python3.X environment` would make, with wheels in place of the sources."""
    programs = environment(tmp_path, version, ROOT / "envs" / "dev.txt")
    install(programs / "python", *wheels.values())
    assert set(run(programs / "python", "-P", "-c", IMPORT_ALL, *wheels).split()) <= FRAMEWORKS
    own = Path(sys.executable).parent
    assert run(programs / "ckptbench", *CASE.split()) == run(own / "ckptbench", *CASE.split())
    run(programs / "ckptbench", "page", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == (ROOT / "docs/calculator.html").read_bytes()
    if version != OTHERS[-1] and not FULL:
        return  # one other Python runs the tests and the workflow as well
    run(programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", *UNIT, PYTHONPATH=".", PYTHONDONTWRITEBYTECODE="1")  # fmt: skip
    checkout = Checkout.make(tmp_path / "checkout")
    command = ["snakemake", "-n", "--profile", "local", "--directory", str(checkout.folder), "--snakefile", str(checkout.folder / "Snakefile")]  # fmt: skip
    assert "train_cell" in run(programs / "python", "-m", *command)


@pytest.mark.parametrize("version", OLDER)
def test_the_probe_runs_with_an_older_python(
    version: str, wheels: dict[str, Path], tmp_path: Path
) -> None:
    (lock := tmp_path / "empty.txt").touch()
    programs = environment(tmp_path, version, lock)
    install(programs / "python", wheels["ckptbench_probe"])
    missing = set(run(programs / "python", "-c", IMPORT_ALL, "ckptbench_probe").split())
    assert missing <= FRAMEWORKS | {"numpy"}
    assert "ckptbench-probe" in run(programs / "ckptbench-probe", "--help")


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_the_classifiers_name_every_python_from_the_first(project: Path) -> None:
    content = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    first = int(content["requires-python"].removeprefix(">=3.").partition(",")[0])
    named = [line for line in content["classifiers"] if ":: Python :: 3" in line]
    assert named == [f"Programming Language :: Python :: 3.{minor}" for minor in range(first, 15)]
