"""What is packed for a machine without a registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from ckptbench.common.files import file_sha256
from scripts.wheelhouse import pack, platforms, requirements

ROOT = Path(__file__).resolve().parents[2]


def wheel(folder: Path, version: str, tag: str) -> str:
    """Of a package `thing` that is empty: its hash."""
    path = folder / f"thing-{version}-{tag}.whl"
    with ZipFile(path, "w") as archive:
        for name, text in {
            "METADATA": f"Metadata-Version: 2.1\nName: thing\nVersion: {version}\n",
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
            "RECORD": "",
        }.items():
            archive.writestr(f"thing-{version}.dist-info/{name}", text)
    return f"--hash=sha256:{file_sha256(path)}"


def test_the_wheels_of_another_python_are_packed_if_their_hash_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (there := tmp_path / "there").mkdir()
    tags = ("cp311-cp311-manylinux_2_17_x86_64", "cp313-cp313-manylinux_2_17_x86_64", "cp313-cp313-manylinux_2_34_x86_64")  # fmt: skip
    old, *new = [wheel(there, "2" if "313" in tag else "1", tag) for tag in tags]
    (lock := tmp_path / "mine.txt").write_text(
        f"thing==1 ; python_full_version < '3.12' \\\n    {old}\n"
        f"thing==2 ; python_full_version >= '3.12' \\\n    {' '.join(new)}\n"
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(there))
    for version, expected in (("3.11", f"thing-1-{tags[0]}.whl"), ("3.13", f"thing-2-{tags[1]}.whl")):  # fmt: skip
        pack(lock, packed := tmp_path / version, version, "manylinux_2_28_x86_64")
        assert [path.name for path in packed.iterdir()] == [expected]
    lock.write_text(f"thing==1 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(subprocess.CalledProcessError):
        pack(lock, tmp_path / "other", "3.11", "manylinux_2_28_x86_64")


def test_the_lock_of_the_workflow_has_a_version_of_each_package_for_each_python() -> None:
    for version in ("3.11", "3.12", "3.14"):
        lines = requirements(ROOT / "envs" / "dev.txt", version)
        names = [line.partition("==")[0] for line in lines]
        assert len(names) == len(set(names)) > 90
        assert not any(";" in line for line in lines)


def test_wheels_for_an_older_glibc_are_taken_too() -> None:
    assert platforms("manylinux_2_17_x86_64")[-4:] == [
        "manylinux_2_5_x86_64", "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("3.12", "manylinux_2_28_x86_64", "pytorch"), "pytorch.txt has PyTorch for CPUs"),
        (
            ("3.12", "linux_x86_64", "data"),
            "PLATFORM is linux_x86_64: write it as manylinux_2_28_x86_64",
        ),
        (("312", "manylinux_2_28_x86_64", "data"), "PYTHON_VERSION is 312: write it as 3.12"),
    ],
)
def test_what_cannot_be_packed_is_said_in_one_line(
    words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "scripts.wheelhouse", str(tmp_path / "packed"), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1


def test_make_takes_all_from_the_folder_that_was_packed(tmp_path: Path) -> None:
    """Neither pip nor uv looks elsewhere, also for the environments that Snakemake makes."""
    (folder := tmp_path / "packed").mkdir()
    (program := tmp_path / "snakemake").write_text(
        "#!/bin/sh\nenv | grep -E '^(PIP|UV)_(NO_INDEX|OFFLINE|FIND_LINKS)='\n"
    )
    program.chmod(0o755)
    command = ["make", "-C", str(ROOT), "-o", "environment", f"BIN={tmp_path}", "plan", f"WHEELHOUSE={folder}"]  # fmt: skip
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    settings = {"PIP_NO_INDEX=1", "UV_OFFLINE=1", f"PIP_FIND_LINKS={folder}", f"UV_FIND_LINKS={folder}"}  # fmt: skip
    assert settings <= set(told.splitlines())
    command = [
        "make",
        "-C",
        str(ROOT),
        "--dry-run",
        "make-venv",
        f"WHEELHOUSE={folder / 'nothing'}",
    ]
    first = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    check = next(line for line in first.splitlines() if line.startswith("test -d"))
    refused = subprocess.run(check, shell=True, capture_output=True, text=True, check=False)
    assert "nothing: there is no such folder; make wheelhouse packs it" in refused.stdout
    assert refused.returncode
