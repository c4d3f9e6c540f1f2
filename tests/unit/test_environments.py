"""Environments: what uv is told, and what is said when it fails."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ckptbench.environments import create as environments
from ckptbench.environments import locking
from ckptbench.environments.create import create_environment
from ckptbench.environments.horovod import HorovodBuild
from ckptbench.environments.locking import locked
from ckptbench.errors import EnvironmentSetupError
from ckptbench.matrix.catalogue import FRAMEWORKS, RECOVERIES

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "envs" / "build-constraints.txt"


def test_an_environment_is_ready_when_all_is_installed(tmp_path: Path) -> None:
    lock = tmp_path / "empty.txt"
    lock.write_text("")
    create_environment(lock, CONSTRAINTS, tmp_path / "environment")
    ready = json.loads((tmp_path / "environment" / "ready.json").read_text())
    assert ready["lock"] == "empty.txt"
    assert (tmp_path / "environment" / "bin" / "python").exists()


def test_what_cannot_be_installed_is_said_with_uvs_own_words(tmp_path: Path) -> None:
    lock = tmp_path / "wrong.txt"
    lock.write_text("numpy==0.0.0.1\n")
    with pytest.raises(
        EnvironmentSetupError, match=r"wrong\.txt: uv could not install(.|\n)*numpy"
    ):
        create_environment(lock, CONSTRAINTS, tmp_path / "environment")
    assert not (tmp_path / "environment" / "ready.json").exists()


def test_two_processes_do_not_make_the_same_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "PATIENCE_SECONDS", 0.3)
    lock = tmp_path / "empty.txt"
    lock.write_text("")
    folder = tmp_path / "environment"
    create_environment(lock, CONSTRAINTS, folder)
    made = (folder / "ready.json").stat().st_mtime_ns
    words = rf"environment is being made by another process \({os.getpid()}\): wait until"
    with locked(folder), pytest.raises(EnvironmentSetupError, match=words):
        create_environment(lock, CONSTRAINTS, folder)
    assert (folder / "ready.json").stat().st_mtime_ns == made
    create_environment(lock, CONSTRAINTS, folder)
    assert (folder / "ready.json").stat().st_mtime_ns != made


def test_wheels_that_pip_was_told_of_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert environments._environment(Path("pytorch.txt"))["UV_FIND_LINKS"] == "/wheels"


def test_without_them_pytorch_comes_from_its_cpu_index(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_FIND_LINKS", "PIP_FIND_LINKS", "UV_TORCH_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    assert environments._environment(Path("pytorch.txt"))["UV_TORCH_BACKEND"] == "cpu"
    assert "UV_TORCH_BACKEND" not in environments._environment(Path("pytorch-cuda.txt"))


@pytest.mark.parametrize("lock", sorted((ROOT / "envs").glob("*.txt")), ids=lambda path: path.stem)
def test_a_lock_holds_versions_and_no_sources(lock: Path) -> None:
    for line in lock.read_text().splitlines():
        name, _, version = line.partition("==")
        assert name, line
        assert version[0].isdigit(), line
        assert "+" not in version, f"{line}: a local build"
        assert "/" not in version.partition(";")[0], line


def test_make_environments_makes_every_environment_on_a_cpu() -> None:
    command = ["make", "--dry-run", "--always-make", "environments"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    made = {Path(word).parent.name for word in done.stdout.split() if word.endswith("/ready.json")}
    own = [(name, entry) for name, entry in RECOVERIES.items() if entry.own_environment]
    needed = {f"{each}_{name}" for name, entry in own for each in entry.frameworks or FRAMEWORKS}
    assert made == {"data", *FRAMEWORKS, *needed}


def test_the_registry_names_the_recipe_of_every_framework_that_is_compiled(tmp_path: Path) -> None:
    for name, entry in FRAMEWORKS.items():
        build = HorovodBuild.needed_by(ROOT / "envs" / f"{name}.txt", tmp_path)
        recipe = None if build is None else "src/ckptbench/environments/horovod.py"
        assert entry.recipe == recipe, name
        assert recipe is None or (ROOT / recipe).exists()


def test_every_environment_of_a_recovery_has_its_lock_beside_the_frameworks_versions() -> None:
    own = {name: entry for name, entry in RECOVERIES.items() if entry.own_environment}
    assert own
    for name, entry in own.items():
        for framework in entry.frameworks or FRAMEWORKS:
            # The rule that makes environments finds a recipe by a framework's name.
            assert FRAMEWORKS[framework].recipe is None, f"{name} with {framework}"
            lock = ROOT / "envs" / f"{framework}_{name}.txt"
            assert lock.with_suffix(".in").exists(), lock
            theirs = (ROOT / "envs" / f"{framework}.txt").read_text().splitlines()
            missing = set(theirs) - set(lock.read_text().splitlines())
            assert {line.partition("==")[0] for line in missing} <= {"mpich"}, lock
