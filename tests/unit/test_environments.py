"""Environments: what uv is told, and what is said when it fails."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from stored_versions import Busy

from ckptbench.common.errors import EnvironmentSetupError
from ckptbench.common.files import file_sha256, write_json
from ckptbench.inputs.environments import create as environments
from ckptbench.inputs.environments import folder as environment_folder
from ckptbench.inputs.environments.create import changes, create_environment, described, obstacle
from ckptbench.inputs.environments.folder import environment_sha256, locked
from ckptbench.inputs.environments.horovod import HorovodBuild
from ckptbench.inputs.environments.interpreter import find_interpreter
from ckptbench.inputs.environments.lock_file import pinned, pinned_sha256, read_lock
from ckptbench.matrix.registry import FRAMEWORKS, RECOVERIES, environment_of
from tests.living import is_running

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "envs" / "build-constraints.txt"
LOCKS = sorted((ROOT / "envs").glob("*.txt"))


def test_an_environment_is_ready_when_all_is_installed(tmp_path: Path) -> None:
    lock = tmp_path / "empty.txt"
    lock.write_text("")
    create_environment(lock, CONSTRAINTS, tmp_path / "environment")
    ready = json.loads((tmp_path / "environment" / "ready.json").read_text())
    assert ready["lock"] == "empty.txt"
    assert (tmp_path / "environment" / "bin" / "python").exists()


def test_an_environment_that_cannot_be_removed_is_named(tmp_path: Path, busy: Busy) -> None:
    (lock := tmp_path / "empty.txt").write_text("")
    (folder := tmp_path / "environment").mkdir()
    busy.hold(folder)
    with pytest.raises(EnvironmentSetupError, match=r"environment, which .* cannot be removed"):
        create_environment(lock, CONSTRAINTS, folder)


def test_what_cannot_be_installed_is_said_with_uvs_own_words(tmp_path: Path) -> None:
    lock = tmp_path / "wrong.txt"
    lock.write_text(f"numpy==0.0.0.1 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(
        EnvironmentSetupError, match=r"wrong\.txt: uv could not install(.|\n)*numpy"
    ):
        create_environment(lock, CONSTRAINTS, tmp_path / "environment")
    assert not (tmp_path / "environment" / "ready.json").exists()


def test_a_package_without_a_hash_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheel(tmp_path / "wheels", "thing").parent))
    (lock := tmp_path / "mine.txt").write_text("thing==1\n")
    with pytest.raises(EnvironmentSetupError, match=r"must have a hash(.|\n)*thing"):
        create_environment(lock, CONSTRAINTS, tmp_path / "environment")
    assert not (tmp_path / "environment" / "ready.json").exists()


def test_a_file_that_is_not_the_locked_one_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = wheel(tmp_path / "wheels", "thing")
    lock, folder = tmp_path / "mine.txt", tmp_path / "environment"
    lock.write_text(f"thing==1 --hash=sha256:{file_sha256(made)}\n")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(made.parent))
    create_environment(lock, CONSTRAINTS, folder)
    assert list(folder.glob("lib/python*/site-packages/thing-1.dist-info"))
    with ZipFile(made, "a") as archive:
        archive.writestr("thing.py", "print('something else')\n")
    words = r"mine\.txt: uv could not install it(.|\n)*Hash mismatch for `thing==1`"
    with pytest.raises(EnvironmentSetupError, match=words):
        create_environment(lock, CONSTRAINTS, folder)
    assert not (folder / "ready.json").exists()


@pytest.mark.parametrize("label", ["", "+cpu"])
def test_pytorch_is_installed_in_the_build_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    made = wheel(tmp_path / "wheels", "torch", f"2.13.0{label}")
    lock, folder = tmp_path / "mine.txt", tmp_path / "environment"
    other = f"--hash=sha256:{'0' * 64}"
    lock.write_text(f"torch==2.13.0 \\\n    {other} \\\n    --hash=sha256:{file_sha256(made)}\n")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(made.parent))
    create_environment(lock, CONSTRAINTS, folder)
    assert list(folder.glob(f"lib/python*/site-packages/torch-2.13.0{label}.dist-info"))


def test_what_a_package_is_built_with_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "thing-1.tar.gz"
    files = {"pyproject.toml": '[build-system]\nrequires = ["tool"]\nbuild-backend = "tool"\n'}
    with tarfile.open(source, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"thing-1/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    lock = tmp_path / "mine.txt"
    lock.write_text(f"thing @ {source.as_uri()} --hash=sha256:{file_sha256(source)}\n")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheel(tmp_path / "wheels", "tool").parent))
    with pytest.raises(EnvironmentSetupError, match="no trusted hash was provided for: `tool`"):
        create_environment(lock, CONSTRAINTS, tmp_path / "environment")


def wheel(folder: Path, name: str, version: str = "1") -> Path:
    """A wheel of an empty package."""
    folder.mkdir()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for file, text in {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }.items():
            archive.writestr(f"{name}-{version}.dist-info/{file}", text)
    return path


WORKFLOW = """
import os, subprocess, sys
subprocess.Popen([*sys.argv[1:], "--parent", str(os.getpid())]).wait()
"""


def wait_for(condition: Callable[[], bool]) -> None:
    """The bound is for a machine under load."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_environment_is_not_made_to_the_end_without_its_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (uv := tmp_path / "uv").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    uv.chmod(0o755)
    (python := tmp_path / "python").symlink_to(sys.executable)  # beside it uv is looked for first
    (lock := tmp_path / "empty.txt").write_text("")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src"), *sys.path]))
    make = [
        str(python),
        "-m",
        "ckptbench.workflow",
        "create-environment",
        str(lock),
        str(tmp_path / "environment"),
    ]
    command = [sys.executable, "-c", WORKFLOW, *make, "--constraints", str(CONSTRAINTS)]
    workflow = subprocess.Popen(command)
    wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text().endswith("\n"))
    installer = int((tmp_path / "pid").read_text())
    assert is_running(installer)
    workflow.kill()
    workflow.wait()
    wait_for(lambda: not is_running(installer))
    assert not (tmp_path / "environment" / "ready.json").exists()


def test_two_processes_do_not_make_the_same_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_folder, "PATIENCE_SECONDS", 0.3)
    lock = tmp_path / "empty.txt"
    lock.write_text("")
    folder = tmp_path / "environment"
    create_environment(lock, CONSTRAINTS, folder)
    made = (folder / "ready.json").stat().st_mtime_ns
    words = rf"environment is in use by process {os.getpid()} on .*: wait for it"
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


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_holds_versions_with_hashes_and_no_sources(lock: Path) -> None:
    """A lock for several versions of Python may have another version of a package for each."""
    text = lock.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("# python: 3.1")]
    for line in (" ".join(line.split()) for line in lines):
        name = line.partition("==")[0]
        requirement, *hashes = line.split(" --hash=")
        version, _, condition = requirement.partition(";")
        assert re.fullmatch(rf"{re.escape(name)}==\d[\w.]*", version.strip()), line
        assert not condition or re.fullmatch(r"[\w' <>=!.]+", condition), line
        assert hashes, f"{name} without a hash"
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes), line


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_is_for_the_python_that_its_requirements_name(lock: Path) -> None:
    named = re.findall(r"^# python: (.*)$", lock.with_suffix(".in").read_text(), re.MULTILINE)
    assert named == re.findall(r"^# python: (.*)$", lock.read_text(), re.MULTILINE)
    assert bool(named) == (lock.stem not in {"main", "dev", "data", "build-constraints"})


def test_an_environment_has_the_python_that_its_lock_names(tmp_path: Path) -> None:
    """Beside the one that runs this, where there is another one."""
    own = "{}.{}".format(*sys.version_info)
    others = [version for version in ("3.12", "3.13", "3.11") if version != own]
    wanted = next(filter(find_interpreter, others), own)
    (lock := tmp_path / "empty.txt").write_text(f"# python: {wanted}\n")
    create_environment(lock, CONSTRAINTS, folder := tmp_path / "environment")
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    python = folder / "bin" / "python"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == wanted
    assert changes(folder, described(lock, CONSTRAINTS)) == []
    lock.write_text("# python: 3.99\n")
    assert changes(folder, described(lock, CONSTRAINTS)) == ["python"]
    words = r"empty\.txt is for Python 3\.99, which is not on this machine: load it"
    with pytest.raises(EnvironmentSetupError, match=words):
        create_environment(lock, CONSTRAINTS, folder)
    assert python.exists(), "what was there stays"


def test_a_name_of_python_that_does_not_start_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pyenv's names of the versions to which nobody has switched, and a name of another implementation."""
    for number, text in enumerate(["exit 127", "echo pypy 3.98", "echo cpython 3.98"]):
        (folder := tmp_path / str(number)).mkdir()
        (folder / "python3.98").write_text(f"#!/bin/sh\n{text}\n")
        (folder / "python3.98").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in "012"))
    assert find_interpreter("3.98") == tmp_path / "2" / "python3.98"
    assert find_interpreter("3.97") is None


def test_what_an_environment_needs_that_is_not_there_is_said_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lock := tmp_path / "empty.txt").write_text("# python: 3.99\n")
    folder = tmp_path / "environment"
    need = "Python 3.99: load it (module load python/3.99), or run `.venv/bin/uv python install 3.99`"  # fmt: skip
    assert obstacle(lock, CONSTRAINTS, folder) == need
    folder.mkdir()
    write_json(folder / "ready.json", described(lock, CONSTRAINTS))
    assert obstacle(lock, CONSTRAINTS, folder) is None, "it is made already"
    lock.write_text("horovod==0.28.1\ntorch==2\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert obstacle(lock, CONSTRAINTS, folder) == "a C++ compiler and make on PATH, to compile Horovod"  # fmt: skip


def test_an_environment_of_before_has_the_python_that_all_had(tmp_path: Path) -> None:
    (lock := tmp_path / "empty.txt").write_text("# python: 3.11\n")
    wanted = described(lock, CONSTRAINTS)
    assert "python" not in wanted, "or all would be made again"
    (folder := tmp_path / "environment").mkdir()
    write_json(folder / "ready.json", wanted)
    assert changes(folder, wanted) == []
    other = wanted | {"python": "3.12"}
    assert changes(folder, other) == ["python"]
    assert environment_sha256(other) != environment_sha256(wanted)
    write_json(folder / "ready.json", other)
    assert changes(folder, wanted) == ["python"]


def test_a_lock_for_cpus_takes_both_builds_of_pytorch() -> None:
    """A CPU build has a label in its version, which the lock leaves out."""
    hashes = {
        lock.stem: set(read_lock(lock)["torch"].split(" --hash=")[1:])
        for lock in LOCKS
        if "torch" in read_lock(lock)
    }
    on_pypi = hashes["pytorch-cuda"]
    for name, of_lock in hashes.items():
        assert of_lock >= on_pypi
        assert (of_lock > on_pypi) != name.endswith("-cuda"), name


def test_pip_installs_the_locked_uv_and_no_other() -> None:
    """`make environment` gives pip uv's part of the lock."""
    commands = ["make", "--dry-run", "make-venv"]
    done = subprocess.run(commands, cwd=ROOT, capture_output=True, text=True, check=True)
    cut = next(line for line in done.stdout.splitlines() if line.startswith("sed "))
    part, _, file = cut.partition(" > ")
    printed = subprocess.run(
        ["bash", "-c", part], cwd=ROOT, capture_output=True, text=True, check=True
    )
    joined = " ".join(printed.stdout.replace("\\\n", " ").split())
    assert joined == read_lock(ROOT / "envs" / "dev.txt")["uv"]
    assert f"--require-hashes --requirement {file}\n" in done.stdout
    for command in [line for line in done.stdout.splitlines() if "/uv pip " in line]:
        assert "--require-build-hashes" in command
        assert "--require-hashes" in command or "--no-deps" in command


def test_make_environments_makes_every_environment_on_a_cpu() -> None:
    """But the large one of some trainers, which only their study needs."""
    command = ["make", "--dry-run", "--always-make", "environments"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    made = {Path(word).parent.name for word in done.stdout.split() if word.endswith("/ready.json")}
    own = [(name, entry) for name, entry in RECOVERIES.items() if entry.own_environment]
    needed = {f"{each}_{name}" for name, entry in own for each in entry.frameworks or FRAMEWORKS}
    assert made == {"data", "trainers", *map(environment_of, FRAMEWORKS), *needed}


def test_the_registry_names_the_recipe_of_every_framework_that_is_compiled(tmp_path: Path) -> None:
    for name, entry in FRAMEWORKS.items():
        build = HorovodBuild.needed_by(ROOT / "envs" / f"{environment_of(name)}.txt", tmp_path)
        recipe = None if build is None else "src/ckptbench/inputs/environments/horovod.py"
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
            theirs = read_lock(ROOT / "envs" / f"{framework}.txt").items()
            assert {name for name, _ in theirs - read_lock(lock).items()} <= {"mpich"}, lock


def test_hashes_in_a_lock_change_no_environment(tmp_path: Path) -> None:
    plain, hashed = tmp_path / "plain.txt", tmp_path / "hashed.txt"
    plain.write_text("numpy==2.0\nuvloop==1 ; sys_platform != 'win32'\n")
    hashed.write_text(
        "numpy==2.0 \\\n    --hash=sha256:12 \\\n    --hash=sha256:34\n"
        "uvloop==1 ; sys_platform != 'win32' \\\n    --hash=sha256:56\n"
    )
    assert pinned(hashed) == plain.read_text()
    # As locks without hashes were recorded before.
    assert pinned_sha256(hashed) == file_sha256(plain)


def test_what_makes_an_environment_another_one_is_its_packages_and_not_how_they_were_built(
    tmp_path: Path,
) -> None:
    lock, constraints = tmp_path / "mine.txt", tmp_path / "constraints.txt"
    lock.write_text("numpy==2\n")
    constraints.write_text("")
    before = described(lock, constraints)
    constraints.write_text("setuptools==1\n")
    now = described(lock, constraints)
    assert now != before
    assert environment_sha256(now) == environment_sha256(before)
    lock.write_text("numpy==2\nhorovod==0.28.1\n")
    now = described(lock, constraints)
    assert now.keys() - before.keys() == {"recipe"}
    assert environment_sha256(now) != environment_sha256(before)


def test_an_environment_is_another_one_by_the_content_of_its_lock(tmp_path: Path) -> None:
    lock, constraints = tmp_path / "mine.txt", tmp_path / "constraints.txt"
    lock.write_text("numpy==2\n")
    constraints.write_text("")
    assert changes(tmp_path, described(lock, constraints)) == [], "there is none"
    write_json(tmp_path / "ready.json", described(lock, constraints))
    lock.touch()
    assert changes(tmp_path, described(lock, constraints)) == []
    lock.write_text("numpy==3\n")
    assert changes(tmp_path, described(lock, constraints)) == ["sha256"]
    (tmp_path / "ready.json").write_text("{")
    assert changes(tmp_path, described(lock, constraints)) == ["ready.json"]
