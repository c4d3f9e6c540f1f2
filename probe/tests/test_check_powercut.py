"""`ckptbench-probe check powercut`: what it says of ways to save without a framework, and where it cannot tell."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from probed import Bench

LOOP = """
import json, os, sys
from ckptbench_probe import session
folder, how, updates = sys.argv[1], sys.argv[2].split("+"), 30
os.makedirs(folder, exist_ok=True)

def sync(path):
    if "synced" in how or ("data-synced" in how and "latest" not in path):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

def write(path, text):
    with open(path, "w") as file:
        file.write(text)
    sync(path)

def steps():
    return sorted(name for name in os.listdir(folder) if name.startswith("step-"))

def newest():
    if "pointer" in how:
        return open(os.path.join(folder, "latest")).read() if steps() else None
    return steps()[-1] if steps() else None

name = newest()
done = json.load(open(os.path.join(folder, name)))["done"] if name else 0
with session() as s:
    while done < updates:
        done += 1
        s.step(state={"weight": float(done)}, update=done)
        if done % 2 == 0:
            path = os.path.join(folder, f"step-{done:03d}")
            older = steps()
            with s.checkpoint(path):
                if "remove-first" in how:
                    for old in older:
                        os.remove(os.path.join(folder, old))
                partial = os.path.join(folder, ".partial")
                write(partial, json.dumps({"done": done, "more": "x" * 9000}))
                os.rename(partial, path)
                sync(folder)
                if "pointer" in how:
                    write(os.path.join(folder, ".latest"), os.path.basename(path))
                    os.rename(os.path.join(folder, ".latest"), os.path.join(folder, "latest"))
                    sync(folder)
            for old in older[:-1]:
                if os.path.exists(os.path.join(folder, old)):
                    os.remove(os.path.join(folder, old))
"""


def check(
    bench: Bench, how: str, *options: str, folder: str = "{folder}", **variables: str
) -> tuple[int, list[str]]:
    path = bench.write("train.py", LOOP)
    command = [bench.launcher, str(path), folder, how]
    done = subprocess.run(
        [*bench.probe(), "check", "powercut", *options, "--", *command], cwd=bench.folder, env=bench.environment(**variables), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, (done.stdout or done.stderr).splitlines()


def outcomes(bench: Bench) -> dict[str, Any]:
    found = json.loads((bench.folder / "ckptbench-check/powercut.json").read_text())
    return {one["point"]: one["resumed_from"] or one["verdict"] for one in found["outcomes"]}


def test_a_rename_without_a_sync_is_torn(bench: Bench) -> None:
    """Each run has the program's folder to itself."""
    code, lines = check(bench, "rename", "--output", "out", folder="out")
    assert code == 1, lines
    assert lines[0] == "TORN: 3 of 5 power cuts in save 3, of update 6, leave no checkpoint that it resumes from"  # fmt: skip
    assert lines[1].startswith("before the next save: step-006 is empty: it failed: exit code 1, its last line: json.decoder.JSONDecodeError: ")  # fmt: skip
    assert outcomes(bench) == {
        "before the next save: step-006 is empty": "torn",
        "before the next save: step-006 reads as zeros in the middle": "torn",
        "before the next save: nothing is lost": 6,
        "before the next save: the rename to step-006 is lost, and 2 other changes of names with it": 4,
        "after the rename to step-006: step-006 is empty": "torn",
    }  # fmt: skip


def test_a_rename_between_syncs_of_file_and_folder_is_safe(bench: Bench) -> None:
    code, lines = check(bench, "synced", "--all")
    assert code == 0, lines
    assert lines[0] == "safe: after each of 5 power cuts in save 3, of update 6, it is resumed from a whole checkpoint"  # fmt: skip
    assert outcomes(bench) == {
        "before the next save: nothing is lost": 6,
        "before the next save: the removal of step-002 is undone": 6,
        "after the rename to step-006: the rename to step-006 is lost": 4,
        "after .partial is created: nothing is lost": 4,
        "after .partial is created: the new .partial is lost": 4,
    }


@pytest.mark.parametrize(("filesystem", "code"), [("xfs", 3), ("ext4", 0)])
def test_a_pointer_is_renamed_without_a_sync(filesystem: str, code: int, bench: Bench) -> None:
    """ext4 writes it before the rename, as that replaces the old one."""
    found = check(bench, "pointer+data-synced", "--filesystem", filesystem)
    assert found[0] == code, found
    assert outcomes(bench).get("before the next save: latest is empty") == ("loses" if code else None)  # fmt: skip


def test_a_checkpoint_that_is_removed_before_the_next_is_on_the_disk_is_lost(bench: Bench) -> None:
    code, lines = check(bench, "remove-first+synced")
    assert code == 3, lines
    assert lines[:2] == [
        "LOSES ALL: 1 of 2 power cuts in save 3, of update 6, leave no checkpoint",
        "after step-004 is removed: nothing is lost: it begins again at 0: no checkpoint was left",
    ]


def test_it_says_when_it_cannot_tell(bench: Bench) -> None:
    code, lines = check(bench, "synced", "--save", "1")
    assert code == 2
    assert lines[0] == "cannot tell: before the save, with nothing lost, it is not resumed from a whole update either (it begins again at 0: no checkpoint was left): name a later save by --save"  # fmt: skip
    code, lines = check(bench, "synced", PATH="")
    assert code == 2
    assert lines == ["ckptbench-probe: strace is not installed: check powercut needs strace (as by apt install strace), and leave to trace (in a container, --cap-add SYS_PTRACE)"]  # fmt: skip
