"""Horovod's wheel: when it is made, from what, and what is said where it cannot be; nothing is compiled here."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ckptbench.common.errors import EnvironmentSetupError
from ckptbench.common.files import file_sha256
from ckptbench.inputs.environments.create import create_environment
from ckptbench.inputs.environments.horovod import RECIPE, Edit, HorovodBuild

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "envs" / "build-constraints.txt"
LOCKS = sorted((ROOT / "envs").glob("horovod_*.txt"))
HASH = f"--hash=sha256:{'0' * 64}"
LOCK = ("horovod==0.28.1", "setuptools==84.2.1", "torch==2.13.0", "wheel==0.1")

# Does what pip does with Horovod's source, as quickly as can be: the command is the first word after pip's options.
PIP = """#!/usr/bin/env python3
import io, os, pathlib, sys, tarfile
folder = pathlib.Path(next(w for o, w in zip(sys.argv, sys.argv[1:]) if o in ("--dest", "--wheel-dir")))
if "download" in sys.argv:
    assert "--require-hashes" in sys.argv
    assert pathlib.Path(sys.argv[-1]).read_text().strip() == "horovod==0.28.1 --hash=sha256:" + 64 * "0"
    with tarfile.open(folder / "horovod-0.28.1.tar.gz", "w:gz") as archive:
        for path, text in {files}.items():
            entry = tarfile.TarInfo("horovod-0.28.1/" + path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
elif {fails}:
    print("gcc error.cc", "horovod.cc:1: error: no", *range(100), sep="\\n")
    sys.exit("it did not run successfully")
else:
    source = pathlib.Path(sys.argv[-1])
    text = "".join(sorted(path.read_text() for path in source.rglob("*.txt")))
    names = sorted(name for name in os.environ if name.startswith("HOROVOD_WITH"))
    (folder / "horovod-0.28.1-py3-none-any.whl").write_text(" ".join(names) + os.environ["MAKEFLAGS"] + text)
"""
SOURCE = {edit.file: f"before\n{edit.old}\nafter\n" for edit in RECIPE.edits}


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "horovod_pytorch.txt"
    path.write_text("".join(f"{line} \\\n    {HASH}\n" for line in LOCK))
    return path


def build_of(lock: Path) -> HorovodBuild:
    build = HorovodBuild.needed_by(lock, lock.parent / "wheels")
    assert build is not None
    return build


def interpreter(folder: Path, *, files: dict[str, str] | None = None, fails: bool = False) -> Path:
    path = folder / "python"
    path.write_text(PIP.replace("{files}", repr(files or SOURCE)).replace("{fails}", str(fails)))
    path.chmod(0o755)
    return path


def test_only_a_lock_that_lists_horovod_needs_the_wheel(tmp_path: Path, lock: Path) -> None:
    assert HorovodBuild.needed_by(lock, tmp_path) is not None
    assert HorovodBuild.needed_by(ROOT / "envs" / "pytorch.txt", tmp_path) is None


def test_a_version_without_a_recipe_is_refused(tmp_path: Path, lock: Path) -> None:
    lock.write_text("horovod==0.29.0\n")
    with pytest.raises(EnvironmentSetupError, match=r"horovod==0\.29\.0: only 0\.28\.1"):
        HorovodBuild.needed_by(lock, tmp_path)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_the_locks_hold_what_the_recipe_needs(path: Path, tmp_path: Path) -> None:
    assert HorovodBuild.needed_by(path, tmp_path) is not None
    assert "setuptools==" in path.read_text()


def test_the_environment_holds_the_lock_and_the_tools_while_the_wheel_is_compiled(
    lock: Path,
) -> None:
    lines = build_of(lock).packages_to_compile().values()
    assert sorted(lines) == sorted(
        [f"setuptools==84.2.1 {HASH}", f"torch==2.13.0 {HASH}", *RECIPE.tools]
    )
    assert all(re.search("==.* --hash=sha256:[0-9a-f]{64}$", tool) for tool in RECIPE.tools)


def test_and_afterwards_what_the_lock_lists_with_the_wheel_for_horovod(lock: Path) -> None:
    wheel = empty_wheel(lock.parent)
    assert [*build_of(lock).packages(wheel).values()] == [
        f"horovod @ file://{wheel} --hash=sha256:{file_sha256(wheel)}",
        f"setuptools==84.2.1 {HASH}",
        f"torch==2.13.0 {HASH}",
        f"wheel==0.1 {HASH}",
    ]


def test_the_wheel_is_made_from_the_edited_source_and_found_again(lock: Path) -> None:
    build = build_of(lock)
    assert build.wheel() is None
    wheel = build.compile(interpreter(lock.parent))
    assert build.wheel() == wheel
    text = wheel.read_text()
    assert "set(CMAKE_CXX_STANDARD 17)" in text
    assert "set(CMAKE_CXX_STANDARD 14)" not in text
    assert "xla_mpi_ops" not in text
    assert "before\n" in text
    assert "HOROVOD_WITHOUT_TENSORFLOW HOROVOD_WITH_GLOO HOROVOD_WITH_PYTORCH" in text
    assert "-j" in text


def test_another_lock_or_another_recipe_is_another_wheel(lock: Path) -> None:
    build = build_of(lock)
    build.compile(interpreter(lock.parent))
    edits = (*RECIPE.edits, Edit("setup.py", "a", "b"))
    assert replace(build, recipe=replace(RECIPE, edits=edits)).wheel() is None
    assert replace(build, recipe=replace(RECIPE, steps=RECIPE.steps + 1)).wheel() is None
    lock.write_text(lock.read_text().replace("84.2.1", "84.2.2"))
    assert build_of(lock).wheel() is None


def test_a_wheel_whose_making_was_interrupted_is_made_anew(lock: Path) -> None:
    build = build_of(lock)
    draft = build.folder.with_suffix(".partial")
    (draft / "horovod-0.28.1").mkdir(parents=True)
    (draft / "horovod-0.28.1-py3-none-any.whl").write_text("half")
    assert build.wheel() is None
    assert build.compile(interpreter(lock.parent)).read_text() != "half"
    assert not draft.exists()


def test_a_failing_build_shows_the_end_of_its_log_and_names_it(lock: Path) -> None:
    build = build_of(lock)
    with pytest.raises(EnvironmentSetupError) as caught:
        build.compile(interpreter(lock.parent, fails=True))
    log = build.folder.with_suffix(".partial") / "build.log"
    assert str(log) in str(caught.value)
    said = str(caught.value).splitlines()[1:]
    assert [line.strip() for line in said] == [
        *map(str, range(86, 100)),
        "it did not run successfully",
    ]
    assert "\n50\n" in log.read_text()
    assert build.wheel() is None


@pytest.mark.parametrize("edit", RECIPE.edits, ids=lambda edit: edit.file)
def test_an_edit_that_finds_nothing_to_edit_is_an_error(lock: Path, edit: Edit) -> None:
    build, source = build_of(lock), {**SOURCE, edit.file: "as nobody knows it\n"}
    with pytest.raises(EnvironmentSetupError, match=rf"{edit.file} has no `.*` to edit"):
        build.compile(interpreter(lock.parent, files=source))
    assert build.wheel() is None


def test_a_wheel_that_is_there_needs_no_compiler(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the environment says of which recipe it is."""
    lock.write_text(f"horovod==0.28.1 {HASH}\n")
    build = build_of(lock)
    build.folder.mkdir(parents=True)
    wheel = empty_wheel(build.folder)
    assert build.wheel() == wheel
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    folder = lock.parent / "environment"
    create_environment(lock, CONSTRAINTS, folder)
    assert json.loads((folder / "ready.json").read_text())["recipe"] == RECIPE.revision
    assert list(folder.glob("lib/python*/site-packages/horovod-0.28.1.dist-info"))


def empty_wheel(folder: Path) -> Path:
    from zipfile import ZipFile

    path = folder / "horovod-0.28.1-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        files = {
            "METADATA": "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }
        for name, text in files.items():
            wheel.writestr(f"horovod-0.28.1.dist-info/{name}", text)
    return path
