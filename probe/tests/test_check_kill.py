"""`ckptbench-probe check kill`: what it says of a training without a framework, and where it cannot tell."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from probed import Bench, interpreters

from ckptbench_probe.check import points
from ckptbench_probe.reading import Event

LOOP = """
import json, os, shutil, sys
from ckptbench_probe import session
folder, updates = sys.argv[1], int(sys.argv[2])
os.makedirs(folder, exist_ok=True)
whole = sorted(name for name in os.listdir(folder) if name.startswith("step-"))
done = json.load(open(os.path.join(folder, whole[-1], "state.json"))) if whole else 0
with session() as s:
    while done < updates:
        done += 1
        s.step(state={"weight": float(done)}, update=done)
        if done % 2 == 0:
            path = os.path.join(folder, f"step-{done:03d}")
            partial = SAVED
            with s.checkpoint(path):
                os.makedirs(partial)
                with open(os.path.join(partial, "state.json"), "w") as file:
                    json.dump(done, file)
            if partial != path:
                os.rename(partial, path)
            for old in sorted(os.listdir(folder))[:-2]:
                shutil.rmtree(os.path.join(folder, old))
"""
RENAMED, IN_PLACE = 'os.path.join(folder, ".partial")', "path"


def check(
    bench: Bench, saved: str, *options: str, updates: int = 30, folder: str = "{folder}"
) -> tuple[int, list[str]]:
    path = bench.write("train.py", LOOP.replace("SAVED", saved))
    command = [bench.launcher, str(path), folder, str(updates)]
    done = subprocess.run(
        [*bench.probe(), "check", "kill", *options, "--", *command], cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, (done.stdout or done.stderr).splitlines()


def outcomes(bench: Bench) -> dict[str, Any]:
    found = json.loads((bench.folder / "ckptbench-check/kill.json").read_text())
    return {one["point"]: one["resumed_from"] or one["text"] for one in found["outcomes"]}


def test_a_folder_that_is_renamed_is_safe(bench: Bench) -> None:
    """Also while an old one is removed. Each run has the program's folder to itself."""
    code, lines = check(bench, RENAMED, "--output", "out", folder="out")
    assert code == 0, lines
    assert lines[0] == "safe: after each of 5 kills in save 3, of update 6, it is resumed from a whole checkpoint"  # fmt: skip
    assert outcomes(bench) == {
        ".partial/state.json empty": 4,
        "half of .partial/state.json": 4,
        "before the rename to step-006": 4,
        "before step-002 is removed": 6,
        "half of step-002 removed": 6,
    }


def test_saves_that_no_known_engine_makes_are_those_that_write_files(bench: Bench) -> None:
    no_engine = "import contextlib; s.checkpoint = contextlib.nullcontext"
    code, lines = check(bench, f"{IN_PLACE}; {no_engine}")
    assert code == 1, lines
    assert lines[0] == "TORN: 2 of 4 kills in save 3, of update 6, leave no checkpoint that it resumes from"  # fmt: skip


@pytest.mark.parametrize("python", interpreters())
def test_a_folder_that_is_written_under_its_name_is_torn(python: str, bench: Bench) -> None:
    bench.launcher = python
    code, lines = check(bench, IN_PLACE, "--save", "1")
    assert code == 1, lines
    assert lines[0] == "TORN: 2 of 2 kills in save 1, of update 2, leave no checkpoint that it resumes from"  # fmt: skip
    assert lines[1].startswith("step-002/state.json empty: it failed: exit code 1, ")


@pytest.mark.parametrize(
    ("options", "updates", "told"),
    [
        ((), 6, "cannot tell: the training makes fewer than 4 saves in the folder "),
        (("--save", "1", "--resume", "true {folder}"), 30, "cannot tell: killed long after the save, it is not resumed from a whole update either (it ended without an update): "),
    ],
)  # fmt: skip
def test_it_says_when_it_cannot_tell(
    options: tuple[str, ...], updates: int, told: str, bench: Bench
) -> None:
    code, lines = check(bench, IN_PLACE, *options, updates=updates)
    assert code == 2
    assert lines[0].startswith(told)


def event(index: int, what: str, path: str, *, folder: bool = False) -> Event:
    return {"rank": 0, "index": index, "what": what, "path": path, "folder": folder}


def test_a_few_events_are_chosen() -> None:
    """A commit record is one of them, also while it has another name."""
    events = [
        event(0, "write", "s/a.bin"),
        event(1, "write", "s/b.bin"),
        event(2, "write", "s/.metadata.tmp"),
        event(3, "rename", "s/.metadata"),
        event(4, "write", "latest"),
        event(5, "remove", "r", folder=True),
    ]
    assert [one.name for one in points.chosen(events)] == [
        "s/a.bin empty",
        "half of s/a.bin",
        "before s/b.bin is written",
        "before the rename to s/.metadata",
        "before latest is written",
        "latest empty",
        "before r is removed",
        "half of r removed",
    ]
    assert len(points.every(events)) == 4 * 3 + 1 + 2
