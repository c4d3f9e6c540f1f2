"""What is said of files on each file system, and of files that a save has or has not written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from probed import Bench

from ckptbench_probe import cachestat, storage, trace, watcher
from ckptbench_probe.reading import traces
from ckptbench_probe.trace import Trace

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 22 0:40 / /merged rw - overlay overlay rw
31 22 0:41 / /dev/shm rw - tmpfs tmpfs rw
32 22 0:42 / /home rw - nfs4 server:/home rw
33 22 0:43 / /scratch\\040space rw - lustre mds rw
34 22 0:44 / /mnt rw - fuse.sshfs host:/ rw
35 22 254:1 / /data rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "means"),
    [
        ("/somewhere/file", "ext4", storage.WRITTEN_BACK),
        ("/data/file", "xfs", storage.WRITTEN_BACK),
        ("/database/file", "ext4", storage.WRITTEN_BACK),
        ("/merged/file", "overlay", storage.CANNOT_SEE),
        ("/dev/shm/file", "tmpfs", storage.MEMORY),
        ("/home/file", "nfs4", storage.LEFT_NODE),
        ("/scratch space/file", "lustre", storage.LEFT_NODE),
        ("/mnt/file", "fuse.sshfs", storage.LEFT_NODE),
    ],
)
def test_each_file_system_has_its_words(path: str, kind: str, means: str) -> None:
    assert storage.file_system(path, MOUNTS) == kind
    assert storage.clean_means(kind) == means


def test_a_file_is_written_back_when_it_is_synced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    assert cachestat.pages(str(path)).size_bytes == 100_000
    with path.open("rb") as file:
        os.fsync(file.fileno())
    found = cachestat.pages(str(path))
    assert found.unwritten == 0
    seen = storage.clean_means(storage.file_system(str(path))) != storage.CANNOT_SEE
    assert (found.cached > 0) is seen


def test_a_file_that_is_gone_is_said() -> None:
    with pytest.raises(FileNotFoundError):
        cachestat.pages("/no/such/file")


@pytest.fixture
def watching(tmp_path: Path) -> watcher.Watcher:
    return watcher.Watcher(Trace(str(tmp_path / "seen"), "run"))


def test_a_file_of_before_the_save_is_not_taken_for_its_own(
    watching: watcher.Watcher, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"old")
    watched = watching.begin("1", str(path))
    assert list(watched.files()) == []
    path.write_bytes(b"the new one")
    assert list(watched.files()) == [str(path)]


def test_a_renamed_file_is_followed(watching: watcher.Watcher, tmp_path: Path) -> None:
    partial, final = tmp_path / "partial", tmp_path / "final"
    final.write_bytes(b"old")
    watched = watching.begin("1", str(partial))
    partial.write_bytes(b"new")
    watching.renamed(str(partial), str(final))
    assert list(watched.files()) == []
    partial.replace(final)
    assert list(watched.files()) == [str(final)]


def test_the_files_of_a_renamed_folder_are_followed(
    watching: watcher.Watcher, tmp_path: Path
) -> None:
    watched = watching.begin("1", str(tmp_path / "tmp-1" / "data"))
    (tmp_path / "tmp-1").mkdir()
    (tmp_path / "tmp-1" / "data").write_bytes(b"new")
    (tmp_path / "tmp-1").replace(tmp_path / "1")
    watching.renamed(str(tmp_path / "tmp-1"), str(tmp_path / "1"))
    assert list(watched.files()) == [str(tmp_path / "1" / "data")]


def test_of_a_shared_folder_only_the_ranks_own_files_count(
    watching: watcher.Watcher, tmp_path: Path
) -> None:
    watched = watching.begin("1", str(tmp_path / "step-1"), lambda name: name.startswith("__0_"))
    (tmp_path / "step-1").mkdir()
    for name in ("__0_0.distcp", "__1_0.distcp"):
        (tmp_path / "step-1" / name).write_bytes(b"x")
    assert [Path(name).name for name in watched.files()] == ["__0_0.distcp"]


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("s3://bucket/run", "s3://bucket/run"),
        ("gs://bucket/a b", "gs://bucket/a b"),
        ("simplecache::s3://bucket", "simplecache::s3://bucket"),
        ("memory://run", "memory://run"),
        ("file:///c/run", "/c/run"),
        ("file://localhost/c/run", "/c/run"),
        ("FILE:///c/run", "/c/run"),
        ("/c/a:b", "/c/a:b"),
        ("/c//run/", "/c/run"),
        ("local:///c/run", "/c/run"),
    ],
)
def test_a_place_is_a_url_or_an_absolute_path(written: str, known: str) -> None:
    assert storage.place(written) == known
    assert (storage.file_system(known, MOUNTS) in ("s3", "gs", "memory")) is ("://" in known)


def test_a_folder_of_files_that_is_renamed_is_one_checkpoint_by_its_last_name(
    bench: Bench,
) -> None:
    bench.write(
        "train.py",
        """
import os, shutil
os.makedirs("kept")
from safetensors.torch import save_file
from ckptbench_probe import session
with session() as s:
    for step in (1, 2):
        s.step()
        os.makedirs(f"c/step-{step}.part")
        for part in "abc":
            save_file({}, f"c/step-{step}.part/{part}")
        os.rename(f"c/step-{step}.part", f"c/step-{step}")
        shutil.move(f"c/step-{step}", "kept")
        os.symlink("nowhere", "c/pointer.new")
        os.replace("c/pointer.new", "c/pointer")
        for source, target in (("c/none", "c/other"), ("c/pointer", "c/none/pointer")):
            try:
                os.rename(source, target)
            except OSError:
                continue
    s.step()
""",
    )
    ended = bench.run(sys.executable, "train.py")
    rows = ended.summary["checkpoints"]
    assert [one["paths"] for one in rows] == [
        [f"{bench.folder}/kept/step-{step}/{part}" for part in "abc"] for step in (1, 2)
    ]
    assert [(one["files"], one["size"]) for one in rows] == [(3, 3 * 4096)] * 2
    assert f"to {bench.folder}/kept/step-2 (" in ended.line("checkpoints")
    assert "a part of a measurement is missing" not in ended.err


def test_a_trace_begins_with_its_process_though_another_event_comes_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a signal handler that saves, or of the thread of `watcher`."""
    written = Trace(str(tmp_path), "run")
    opening = trace._opening

    def interrupted(run: str) -> dict[str, object]:
        monkeypatch.setattr(trace, "_opening", opening)
        written.write("inside")
        return opening(run)

    monkeypatch.setattr(trace, "_opening", interrupted)
    written.write("outside")
    ((_, events),) = traces(tmp_path)
    assert events[0]["event"] == "process"
    assert {event["event"] for event in events[1:]} == {"inside", "outside"}
