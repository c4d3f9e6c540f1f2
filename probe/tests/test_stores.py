"""Saves that go to an object store through fsspec: here to one in memory, in tests/study/test_probe_stores.py to one with S3's protocol."""

from __future__ import annotations

import sys
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from probed import Bench, Ended

from ckptbench_probe import storage, stores, watcher
from ckptbench_probe.check import folders
from ckptbench_probe.main import main
from ckptbench_probe.watcher import Watched, everything

STORE = """
import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

OBJECTS = {}

class Upload(AbstractBufferedFile):
    def _initiate_upload(self):
        self.parts = []
    def _upload_chunk(self, final=False):
        if "refused" in self.path and self.parts:
            raise OSError("503 Slow Down")
        self.parts.append(self.buffer.getvalue())
        if final:
            OBJECTS[self.path] = b"".join(self.parts)

class Store(fsspec.AbstractFileSystem):
    protocol = "store"
    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        return Upload(self, path, mode, block_size=4096, autocommit=autocommit, size=0)

fsspec.register_implementation("store", Store)
"""
"""As stores are: an object appears when its file is closed, in parts of 4 KiB. `refused` in its name: the second part is refused."""
TORCH = """
def save(obj, f):
    f.write(b"x" * obj)
    if obj == 13:
        raise ValueError("cannot be pickled")
"""
BEGIN = """
import contextlib, fsspec, time, store
from torch.serialization import save
from ckptbench_probe import session
"""


S3TORCHCONNECTOR = """
import io

OBJECTS = {}

class S3Writer(io.BufferedIOBase):
    def __init__(self, path):
        self.path, self.written, self.shut = path, [], False
    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
    def write(self, data):
        self.written.append(bytes(data))
        return len(data)
    def tell(self):
        return sum(map(len, self.written))
    @property
    def closed(self):
        return self.shut
    def close(self):
        if not self.shut:
            self.shut = True
            if "refused" in self.path:
                raise RuntimeError("Client error: Request throttled")
            OBJECTS[self.path] = b"".join(self.written)

class S3Client:
    def put_object(self, bucket, key, storage_class=None):
        return S3Writer(f"{bucket}/{key}")
"""
"""As the client of s3torchconnector 1.5 is, which is in none of these environments."""


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.write("store.py", STORE)
    (bench.folder / "s3torchconnector" / "_s3client").mkdir(parents=True)
    bench.write("s3torchconnector/__init__.py", "")
    bench.write("s3torchconnector/_s3client/__init__.py", "from ._s3client import S3Client")
    bench.write("s3torchconnector/_s3client/_s3client.py", S3TORCHCONNECTOR)
    (bench.folder / "torch").mkdir()
    bench.write("torch/__init__.py", "")
    bench.write("torch/serialization.py", TORCH)
    return bench


def trained(bench: Bench, text: str) -> Ended:
    bench.write("train.py", BEGIN + text)
    ended = bench.run(sys.executable, "train.py")
    assert ended.code == 0, ended.err
    assert "a part of a measurement is missing" not in ended.err
    return ended


def test_a_save_to_a_file_of_fsspec_ends_when_the_file_is_closed(bench: Bench) -> None:
    ended = trained(
        bench,
        """
with session() as s:
    for step in (1, 2, 3):
        s.step()
        with fsspec.open(f"memory://run/step-{step}.pt", "wb") as file:
            save(5000, file)
            time.sleep(0.05)
        with fsspec.open("memory://run/latest", "w") as file:
            file.write(f"step-{step}.pt")
    s.step()
""",
    )
    rows = ended.summary["checkpoints"]
    assert [one["paths"] for one in rows] == [[f"memory://run/step-{n}.pt"] for n in (1, 2, 3)]
    assert [(one["files"], one["size"], one["file_system"]) for one in rows] == [(1, 5000, "memory")] * 3  # fmt: skip
    assert all(one["stall_s"] >= 0.05 and one["clean"] == storage.UPLOADED for one in rows)
    assert "every 1 step, by torch.save, to memory://run (memory)" in ended.line("checkpoints")
    assert ended.line("to storage").split()[2] == "uploaded"
    assert not [line for line in ended.told if line.startswith(("synced", "unsafe"))]


def test_what_a_store_was_not_given_whole_is_named(bench: Bench) -> None:
    """A file of fsspec is uploaded where its `with` ends by an error. Parts of an upload that fails stay in the store."""
    ended = trained(
        bench,
        """
with session() as s:
    for step, (name, size) in enumerate([("whole", 9000), ("cut", 13), ("refused", 9000)]):
        s.step()
        with contextlib.suppress(ValueError, OSError):
            with fsspec.open(f"store://run/{name}.pt", "wb") as file:
                save(size, file)
    s.step()
    print(sorted(store.OBJECTS), flush=True)
    del file
    store.Upload.__del__ = lambda self: None
""",
    )
    assert ended.out == "['run/cut.pt', 'run/whole.pt']\n"
    assert [one["failed"] for one in ended.summary["checkpoints"]] == [False, True, True]
    unsafe = [line for line in ended.told if line.startswith("unsafe")]
    assert [line for line in unsafe if "1 uploads in parts were not finished (refused.pt)" in line]
    assert [line for line in unsafe if "1 objects were uploaded although the save to them had failed (cut.pt)" in line]  # fmt: skip
    assert len(unsafe) == 3  # and that two checkpoints failed


@pytest.mark.parametrize("early", [True, False])
def test_a_pointer_object_that_is_stored_before_its_checkpoint_is_a_danger(
    bench: Bench, early: bool
) -> None:
    point = "fsspec.open('store://run/latest.txt', 'w')"
    inside, after = (point, "contextlib.nullcontext(None)")[:: 1 if early else -1]
    ended = trained(
        bench,
        f"""
with session() as s:
    for step in (1, 2):
        s.step()
        with fsspec.open(f"store://run/step-{{step}}.pt", "wb") as file:
            save(9000, file)
            with {inside} as pointer:
                pointer and pointer.write(f"step-{{step}}.pt")
        with {after} as pointer:
            pointer and pointer.write(f"step-{{step}}.pt")
    s.step()
""",
    )
    assert ("2 times latest.txt was moved to an unfinished checkpoint" in ended.err) is early


def test_training_that_goes_on_before_a_file_is_closed_waits_for_the_call_only(
    bench: Bench,
) -> None:
    ended = trained(
        bench,
        """
with session() as s:
    s.step()
    file = fsspec.open("store://run/a.pt", "wb").open()
    save(9000, file)
    s.step()
    time.sleep(0.2)
    s.step()
    file.close()
    s.step()
    never = fsspec.open("store://run/b.pt", "wb").open()
    save(9000, never)
    s.step()
    store.Upload.__del__ = lambda self: None
""",
    )
    closed, never = ended.summary["checkpoints"]
    assert closed["stall_s"] < 0.2 <= closed["finished_s"]
    assert never["finished_s"] is None
    assert "1 uploads in parts were not finished (b.pt)" in ended.err


def test_a_save_by_s3torchconnector_ends_when_its_file_is_closed(bench: Bench) -> None:
    ended = trained(
        bench,
        """
from s3torchconnector._s3client import S3Client
with session() as s:
    for name in ("a.pt", "refused.pt", "b.pt"):
        s.step()
        with contextlib.suppress(RuntimeError):
            with S3Client().put_object("bucket", f"run/{name}") as file:
                save(5000, file)
                time.sleep(0.05)
    s.step()
""",
    )
    rows = ended.summary["checkpoints"]
    assert [one["paths"][0].rpartition("/")[2] for one in rows] == ["a.pt", "refused.pt", "b.pt"]
    assert [one["failed"] for one in rows] == [False, True, False]
    assert [(one["files"], one["size"]) for one in rows[::2]] == [(1, 5000)] * 2
    assert all(one["stall_s"] >= 0.05 for one in rows)


def test_what_another_client_has_stored_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the arrays of Orbax are, which tensorstore writes. A process that ends has closed the connection of its file system."""

    class Store(MemoryFileSystem):
        cachable = False
        closed = False

        def find(self, *args: Any, **kwargs: Any) -> Any:
            if self.closed:
                raise RuntimeError("Session is closed")
            return super().find(*args, **kwargs)

    own = Store()
    own.pipe({"/run/1/d/arrays": b"x" * 5000, "/run/1/commit_success.txt": b"done"})
    own.closed = True
    monkeypatch.setitem(stores._FILE_SYSTEMS, "memory", own)
    watched = Watched("1", ["memory://run/1"], everything, {}, 0, 0)
    watched.stored["memory://run/1/commit_success.txt"] = 4
    assert watcher._state(watched) == (storage.UPLOADED, 1, 4)
    watched.is_listed = True
    assert watcher._state(watched) == (storage.UPLOADED, 2, 5004)
    watched.paths = ["s3://b/run/1"]
    assert watcher._state(watched) == (storage.NOT_SEEN, 0, 0)
    MemoryFileSystem().rm("/run", recursive=True)


def test_each_run_of_a_check_has_a_prefix_of_its_own_in_a_store(tmp_path: Any) -> None:
    own = tmp_path / "run-7" / "checkpoints-killed"
    command = ["train", "--out=s3://bucket/a/{folder}", "{folder}"]
    assert folders.placed(command, own) == ["train", "--out=s3://bucket/a/run-7/checkpoints-killed", str(own)]  # fmt: skip
    assert folders.in_store([command]) == "s3://bucket/a"
    assert folders.in_store([["train", "{folder}"]]) is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("resume", "--kill-at", "5", "--output", "s3://bucket/run", "--", "true"), "--output names an object store"),
        (("kill", "--", "true", "s3://bucket/{folder}"), "check kill looks at what a save does to files, which a store does not show"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_in_a_store_is_refused(
    words: tuple[str, ...],
    reason: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ckptbench-probe", "check", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert reason in capfd.readouterr().err
    assert not (tmp_path / "s3:").exists()


def test_what_is_missing_to_read_from_a_store_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("absent", "no_such_package.Store", errtxt="Install no_such_package")  # fmt: skip
    with pytest.raises(stores.UnreadableError, match="Install no_such_package, in the environment"):
        stores.opened("absent://b/run")

    class WriteOnly(MemoryFileSystem):
        def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            raise PermissionError("Access Denied")

    monkeypatch.setitem(stores._FILE_SYSTEMS, "s3", WriteOnly())
    with pytest.raises(stores.UnreadableError, match="its credentials need to read, too"):
        stores.opened("s3://b/run")


def test_a_store_has_one_name_for_an_object() -> None:
    places = ["s3a://b/run/", "gcs://b/run", "memory:///run"]
    assert [storage.place(one) for one in places] == ["s3://b/run", "gs://b/run", "memory://run"]  # fmt: skip
    assert storage.file_system("simplecache::s3://b/run") == "s3"
