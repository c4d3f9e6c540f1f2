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
works, kept = True, []

def save(s, done):
    if kept:
        raise kept[0]
    path = os.path.join(folder, f"step-{done:03d}")
    partial = path if how == "in-place" else os.path.join("elsewhere" if how == "moves" else folder, ".partial")
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
        if how in ("raises", "removes-first", "moves"):
            raise
        if how == "exits-0":
            print("no room, and no more training")
            sys.exit()
        if how == "late":
            kept.append(error)
            return True
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


def check(
    bench: Bench, how: str, *options: str, text: str = LOOP, folder: str = "{folder}"
) -> tuple[int, list[str]]:
    command = [bench.launcher, str(bench.write("train.py", text)), folder, how]
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
        ("moves", 0, "safe: ", "a full disk: training ends with exit code 1; resumed from 4"),
        ("late", 0, "safe: ", "a full disk: training goes on; resumed from 4; nothing in its output says that the save has failed; at save 4 training ends with exit code 1; resumed from 4"),
        ("in-place", 1, f"TORN: a full disk {WHERE} leaves no checkpoint that it resumes from", "a full disk: training goes on, and what is left cannot be resumed from: it failed: exit code 1, its last line: json.decoder.JSONDecodeError"),
        ("removes-first", 3, f"LOSES ALL: a full disk {WHERE} leaves no checkpoint", "a full disk: training ends with exit code 1, and the older checkpoints are lost: it begins again at 0: no checkpoint was left"),
        ("silent", 4, f"silent: a full disk {WHERE} goes unnoticed", "a full disk: training goes on; resumed from 4; nothing in its output says"),
        ("exits-0", 4, f"silent: a full disk {WHERE} goes unnoticed", "a full disk: training ends with exit code 0; resumed from 4; a scheduler takes"),
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


STORE = """
import io, os, fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractBufferedFile

class Upload(AbstractBufferedFile):
    def _initiate_upload(self):
        self.parts = []
    def _upload_chunk(self, final=False):
        self.parts.append(self.buffer.getvalue())
        if final:
            self.fs.keep(self.path, b"".join(self.parts))

class Store(AsyncFileSystem):
    protocol = "store"
    cachable = False
    def at(self, path):
        return os.path.join("objects", self._strip_protocol(path))
    def keep(self, path, content):
        os.makedirs(os.path.dirname(self.at(path)), exist_ok=True)
        with open(self.at(path), "wb") as file:
            file.write(content)
    async def _ls(self, path, detail=True, **kwargs):
        own = self.at(path)
        return [os.path.join(path, one) for one in os.listdir(own)] if os.path.isdir(own) else []
    async def _cat_file(self, path, start=None, end=None, **kwargs):
        with open(self.at(path), "rb") as file:
            return file.read()
    async def _pipe_file(self, path, value, **kwargs):
        self.keep(path, value)
    async def _rm_file(self, path, **kwargs):
        os.remove(self.at(path))
    async def _rm(self, path, **kwargs):
        await self._rm_file(path)
    def _open(self, path, mode="rb", **kwargs):
        return open(self.at(path), "rb") if mode == "rb" else Upload(self, path, mode, block_size=4096)

fsspec.register_implementation("store", Store)
"""
"""An object store that is a folder of the bench."""
IN_STORE = """
import fsspec, json, os, sys, store
from ckptbench_probe import session
url, how = sys.argv[1], sys.argv[2]
fs = fsspec.filesystem("store")
whole = sorted(fs.ls(url, detail=False))
done = json.loads(fs.cat_file(whole[-1]))["done"] if whole else 0

def save(s, done):
    path = f"{url}/step-{done:03d}"
    content = json.dumps({"done": done, "weights": [0] * 3000}).encode()
    try:
        if how == "removes-first":
            for old in fs.ls(url, detail=False):
                fs.rm(old)
        with s.checkpoint(path):
            if how == "pipes":
                fs.pipe(path, content)
            else:
                with fs.open(path, "wb") as file:
                    file.write(content)
    except OSError as error:
        if how in ("raises", "removes-first"):
            raise
        if how != "silent":
            print("save failed, training goes on:", error)

with session() as s:
    while done < 30:
        done += 1
        s.step(state={"weight": float(done)}, update=done)
        if done % 2 == 0:
            save(s, done)
"""


@pytest.mark.parametrize(
    ("how", "kind", "code", "then"),
    [
        ("pipes", "all", 0, "a store that is busy (503): training goes on; resumed from 4; after save 4, resumed from 8"),
        ("raises", "503", 0, "a store that is busy (503): training ends with exit code 1; resumed from 4"),
        ("silent", "403", 4, "a store that refuses (403): training goes on; resumed from 4; nothing in its output says"),
        ("removes-first", "503", 3, "a store that is busy (503): training ends with exit code 1, and the older checkpoints are lost: it begins again at 0: no checkpoint was left"),
        ("removes-first", "403", 0, "a store that refuses (403): training ends with exit code 1; resumed from 4"),
    ],
)  # fmt: skip
def test_what_a_store_that_refuses_does(
    how: str, kind: str, code: int, then: str, bench: Bench
) -> None:
    """One that is busy takes no upload, but it removes what it is told to; one that denies access does neither."""
    bench.write("store.py", STORE)
    found, lines = check(bench, how, "--as", kind, text=IN_STORE, folder="store://bucket/{folder}")
    assert found == code, lines
    assert lines[1] == then or lines[1].startswith(f"{then} ")
    if kind == "all":
        messages = [(one["kind"], one["message"]) for one in failures(bench)]
        assert messages == [
            ("503", "save failed, training goes on: [Errno 16] Please reduce your request rate."),
            ("403", "save failed, training goes on: Access Denied"),
        ]


@pytest.mark.parametrize(
    ("folder", "kind", "reason"),
    [("{folder}", "503", "--as 503 is for an object store"), ("s3://b/{folder}", "full", "--as full is for a folder")],
)  # fmt: skip
def test_each_place_is_refused_in_its_own_way(
    folder: str, kind: str, reason: str, bench: Bench
) -> None:
    code, lines = check(bench, "raises", "--as", kind, folder=folder)
    assert code == 2
    assert reason in lines[0]
