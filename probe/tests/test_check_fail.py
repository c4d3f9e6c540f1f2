"""`ckptbench-probe check fail`: what it says of trainings without a framework, done right and done wrong."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from probed import Bench, interpreters

LOOP = """
import json, os, shutil, sys, time
from ckptbench_probe import session
folder, how = sys.argv[1], sys.argv[2]
os.makedirs(folder, exist_ok=True)
whole = sorted(name for name in os.listdir(folder) if name.startswith("step-"))
done = json.load(open(os.path.join(folder, whole[-1], "state.json")))["done"] if whole else 0
works = True

def save(s, done):
    path = os.path.join(folder, f"step-{done:03d}")
    partial = path if how == "in-place" else os.path.join(folder, ".partial")
    if how == "removes-first":
        for old in os.listdir(folder):
            shutil.rmtree(os.path.join(folder, old))
    try:
        with s.checkpoint(path):
            os.makedirs(partial, exist_ok=True)
            with open(os.path.join(partial, "state.json"), "w") as file:
                json.dump({"done": done, "weights": [0] * 9999}, file)
        os.rename(partial, path)
    except OSError as error:
        if how in ("raises", "removes-first"):
            raise
        if how == "exits-0":
            print("no room, and no more training")
            sys.exit()
        if how == "waits":
            time.sleep(600)
        if how != "silent":
            print("save failed, training goes on:", error)
        return how != "gives-up"
    for old in sorted(os.listdir(folder))[:-2]:
        shutil.rmtree(os.path.join(folder, old))
    return True

with session() as s:
    while done < 30:
        done += 1
        s.step(state={"weight": float(done)}, update=done)
        if done % 2 == 0 and works:
            works = save(s, done)
"""


def check(bench: Bench, how: str, *options: str, text: str = LOOP) -> tuple[int, list[str]]:
    command = [bench.launcher, str(bench.write("train.py", text)), "{folder}", how]
    done = subprocess.run(
        [*bench.probe(), "check", "fail", *options, "--", *command], cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, (done.stdout or done.stderr).splitlines()


def failures(bench: Bench) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((bench.folder / "ckptbench-check/fail.json").read_text())["failures"]  # fmt: skip
    return found


WHERE = "at save 3, of update 6,"


def test_a_training_that_goes_on_and_says_so_is_safe(bench: Bench) -> None:
    bench.launcher = interpreters()[0]
    code, lines = check(bench, "goes-on", "--as", "all")
    assert code == 0, lines
    assert lines[0] == "safe: when save 3, of update 6, is refused, a whole checkpoint is left"
    assert lines[1:3] == [
        "a full disk: training goes on; resumed from 4; after save 4, resumed from 8",
        "its output says: save failed, training goes on: [Errno 28] No space left on device",
    ]
    found = failures(bench)
    assert [(one["kind"], one["resumed_from"]) for one in found] == [("full", 8), ("quota", 8), ("unwritable", 8)]  # fmt: skip
    assert found[1]["message"].endswith("[Errno 122] Disk quota exceeded")
    assert "[Errno 13] Permission denied" in found[2]["message"]


@pytest.mark.parametrize(
    ("how", "code", "first", "then"),
    [
        ("raises", 0, "safe: ", "a full disk: training ends with exit code 1; resumed from 4"),
        ("in-place", 1, f"TORN: a full disk {WHERE} leaves no checkpoint that it resumes from", "a full disk: training goes on, and what is left cannot be resumed from: it failed: exit code 1, its last line: json.decoder.JSONDecodeError"),
        ("removes-first", 3, f"LOSES ALL: a full disk {WHERE} leaves no checkpoint", "a full disk: training ends with exit code 1, and the older checkpoints are lost: it begins again at 0"),
        ("silent", 4, f"silent: a full disk {WHERE} and nobody is told", "a full disk: training goes on; resumed from 4; nothing in its output says"),
        ("exits-0", 4, f"silent: a full disk {WHERE} and nobody is told", "a full disk: training ends with exit code 0; resumed from 4; a scheduler takes"),
        ("waits", 5, f"hangs: a full disk {WHERE} and the training stands still", "a full disk: training hangs: it had not ended after "),
        ("gives-up", 6, f"stops saving: a full disk {WHERE} and later saves are missing", "a full disk: training goes on; resumed from 4; save 4, which nothing refuses, is missing too: resumed from 4"),
    ],
)  # fmt: skip
def test_what_a_full_disk_does(how: str, code: int, first: str, then: str, bench: Bench) -> None:
    found, lines = check(bench, how, *(("--timeout", "0.1") if how == "waits" else ()))
    assert found == code, lines
    assert lines[0].startswith(first)
    assert lines[1].startswith(then)


def test_it_cannot_tell_of_too_few_saves(bench: Bench) -> None:
    code, lines = check(bench, "raises", "--save", "20")
    assert code == 2
    assert lines[0].startswith("cannot tell: the training makes fewer than 22 saves in the folder ")
