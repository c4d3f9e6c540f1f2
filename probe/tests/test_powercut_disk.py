"""What strace shows of a program makes the folder that the program has made, and less of it after a power cut."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ckptbench_probe.check import file_calls
from ckptbench_probe.check.cuts import cuts
from ckptbench_probe.check.disk import (  # fmt: skip
    CREATE,
    DATA,
    EXT4,
    FOLDER,
    RENAME,
    SIZE,
    XFS,
    Change,
    Flush,
    Recorded,
    Sync,
    as_on_disk,
)
from ckptbench_probe.check.disk_reader import Reader, numbers
from ckptbench_probe.check.left import EMPTY, HALF, ZEROS, Left, Storage

PROGRAM = r"""
import mmap, os, shutil, subprocess, sys, threading
folder, marks = sys.argv[1:]
os.makedirs(folder + "/a/b")
with open(folder + "/ü \"1\"", "wb") as file:
    file.write(b"\0\n\"x" * 5000)
    file.seek(4)
    file.write(b"changed")
os.chdir(folder)
for number in range(2):
    with open("a/log", "a") as file:
        file.write(f"line {number}\n")
with open("a/b/wide", "wb", 0) as file:
    os.writev(file.fileno(), [b"one", b"two"])
    os.pwrite(file.fileno(), b"far", 9000)
    os.ftruncate(file.fileno(), 9001)
shutil.copyfile("a/b/wide", "copied")
shutil.copyfile(__file__, "program")
with open(f"/dev/shm/ckptbench-{os.getpid()}", "w") as file:
    file.write("in memory")
shutil.move(file.name, "moved from memory")
subprocess.run(["sh", "-c", "echo by a shell > shell; echo more >> shell"], check=True)
with open("mapped", "wb+") as file:
    file.truncate(5000)
    with mmap.mmap(file.fileno(), 5000) as memory:
        memory[10:13] = b"map"
        memory.flush()
os.symlink("a/log", "link")
os.link("copied", "hard")
os.mkdir("c")
at = os.open("c", os.O_RDONLY)
with open("c/old", "w") as file:
    file.write("old")
with open("new", "w") as file:
    file.write("new")
os.rename("new", "old", dst_dir_fd=at)
threads = [threading.Thread(target=lambda n=n: open(f"c/{n}", "w").write(str(n) * 70000)) for n in range(4)]
for one in threads: one.start()
for one in threads: one.join()
os.rename("a", "moved")
os.makedirs("gone/below")
open("gone/below/file", "w").write("x")
os.access(marks + "/before", 0)
shutil.rmtree("gone")
"""


def content(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.is_dir() or path.read_bytes()
        for path in folder.rglob("*")
    }  # fmt: skip


def test_the_calls_of_a_program_make_its_folder_again(tmp_path: Path) -> None:
    """Also what was there before the last removal, which is on no disk any more."""
    (tmp_path / "program.py").write_text(PROGRAM)
    folder, log = tmp_path / "folder", tmp_path / "log"
    command = [sys.executable, str(tmp_path / "program.py"), str(folder), "/marks"]
    subprocess.run(file_calls.around(command, log), check=True, timeout=60)
    end = time.monotonic() + 10
    while b"+++ exited" not in log.read_bytes()[-200:] and time.monotonic() < end:
        time.sleep(0.01)
    reader = Reader(log, "/marks")
    end_at = reader.found.end
    with log.open("rb") as opened:
        seen = Storage(reader.found, EXT4, folder, (end_at, end_at))
        seen.make(Left(end_at, end_at), tmp_path / "seen", opened)
        assert as_on_disk(reader.found, reader.names, folder, opened) == ""
        storage = Storage(reader.found, EXT4, folder, (end_at, end_at))
        storage.make(Left(end_at, end_at), tmp_path / "again", opened)
        before = reader.found.marks["before"]
        storage.make(Left(before, before), tmp_path / "before", opened)
        (folder / "by another").touch()
        unknown = as_on_disk(reader.found, reader.names, folder, opened)
        (folder / "by another").unlink()
    assert unknown == "strace has not seen how by another was made"
    assert content(tmp_path / "seen") == {**content(folder), "mapped": bytes(5000)}
    assert content(tmp_path / "again") == content(folder)
    assert content(tmp_path / "before") == {**content(folder), "gone": True, "gone/below": True, "gone/below/file": b"x"}  # fmt: skip


def test_a_call_that_another_thread_interrupts_in_the_log_keeps_its_last_argument(tmp_path: Path) -> None:  # fmt: skip
    log = tmp_path / "log"
    log.write_text(
        r"""7 1.000001 openat(AT_FDCWD<\x2f>, "\x2f\x72", O_WRONLY|O_CREAT, 0644) = 3<\x2f\x72>
7 1.000002 pwrite64(3<\x2f\x72>, "\x61\x62", 2, 10 <unfinished ...>
8 1.000003 mkdir("\x2f\x62", 0777) = 0
7 1.000004 <... pwrite64 resumed>)         = 2
7 1.000005 ftruncate(3<\x2f\x72>, 11 <unfinished ...>
8 1.000006 mkdir("\x2f\x63", 0777) = 0
7 1.000007 <... ftruncate resumed>)        = 0
"""
    )
    changes = [one for one in Reader(log, "/marks").found.changes if one.kind in (DATA, SIZE)]
    assert [(one.kind, one.offset) for one in changes] == [(DATA, 10), (SIZE, 11)]


OLD, NEW, ROOT_FOLDER = b"o" * 8000, b"n" * 20000, 1


class Saved:
    """Changes made by hand. `old` is there before the window, at 10."""

    def __init__(self) -> None:
        self.found, self.at = Recorded(), 0
        self.add(FOLDER, "/r", ROOT_FOLDER)
        self.add(CREATE, "/r/old", 2)
        self.data("/r/old", 2, OLD)
        self.at = 10

    def add(self, kind: str, path: str, inode: int, **more: object) -> int:
        self.at += 1
        touches = (inode,) if kind in (DATA, SIZE) else (ROOT_FOLDER,) if kind == RENAME else (inode, ROOT_FOLDER)  # fmt: skip
        self.found.changes.append(Change(self.at, kind, inode, path, touches=touches, **more))  # type: ignore[arg-type]
        return self.at

    def data(self, path: str, inode: int, content: bytes, offset: int = 0) -> int:
        return self.add(DATA, path, inode, content=(content,), size=len(content), offset=offset)

    def sync(self, inode: int) -> None:
        self.at += 2
        self.found.syncs.append(Sync(self.at - 1, self.at, inode))

    def rename(self, inode: int, source: str, target: str) -> int:
        at = self.add(RENAME, source, inode, to=target)
        if target == "/r/old":
            self.found.flushes.append(Flush(at, inode, by_rename=True))
        return at

    def storage(self, system: str = XFS) -> Storage:
        return Storage(self.found, system, Path("/r"), (10, self.at + 1))


def left(saved: Saved, how: Left, at: Path, system: str = XFS) -> dict[str, object]:
    log = at / "log"
    log.touch()
    with log.open("rb") as opened:
        saved.storage(system).make(how, at / "made", opened)
    return content(at / "made")


def test_unsynced_data_is_lost_in_three_ways(tmp_path: Path) -> None:
    saved = Saved()
    saved.add(CREATE, "/r/new", 3)
    saved.data("/r/new", 3, NEW)
    for how, data in ((EMPTY, b""), (HALF, NEW[:8192]), (ZEROS, NEW[:8192] + bytes(8192) + NEW[16384:])):  # fmt: skip
        (tmp_path / how).mkdir()
        assert left(saved, Left(saved.at, saved.at, {3: how}), tmp_path / how) == {"old": OLD, "new": data}  # fmt: skip


def test_synced_data_is_there_and_names_wait_for_their_folder() -> None:
    saved = Saved()
    made = saved.add(CREATE, "/r/new", 3)
    saved.data("/r/new", 3, NEW)
    assert saved.storage().unforced(Left(saved.at, saved.at)) == {"/r/new": len(NEW)}
    saved.sync(3)
    renamed = saved.rename(3, "/r/new", "/r/other")
    assert saved.storage().unforced(Left(saved.at, saved.at)) == {}
    assert made <= saved.storage().forced_until(saved.at) < renamed
    assert sorted(saved.storage().names(renamed - 1)) == ["/r/new", "/r/old"]
    saved.sync(ROOT_FOLDER)
    assert saved.storage().forced_until(saved.at) == renamed


@pytest.mark.parametrize("target", ["/r/old", "/r/other"])
def test_ext4_writes_the_data_before_a_rename_that_replaces_a_file(target: str) -> None:
    saved = Saved()
    saved.add(CREATE, "/r/new", 3)
    saved.data("/r/new", 3, NEW)
    saved.rename(3, "/r/new", target)
    end = Left(saved.at, saved.at)
    assert saved.storage(XFS).unforced(end) == {target: len(NEW)}
    assert saved.storage(EXT4).unforced(end) == ({} if target == "/r/old" else {target: len(NEW)})
    names = [one.name for one in cuts(saved.found, (EXT4, XFS), Path("/r"), (10, saved.at + 1), whole=False)]  # fmt: skip
    only = " (XFS only)" if target == "/r/old" else ""
    assert f"before the next save: {target[3:]} is empty{only}" in names


def test_data_that_grows_a_file_comes_after_names_made_before_it(tmp_path: Path) -> None:
    """Data that replaces what the file had does not wait for them."""
    saved = Saved()
    saved.add(CREATE, "/r/new", 3)
    saved.data("/r/old", 2, b"in place")
    saved.data("/r/old", 2, b"more", offset=8000)
    assert left(saved, Left(saved.at, 10), tmp_path) == {"old": b"in place" + OLD[8:]}


def test_what_follows_a_lost_size_is_lost(tmp_path: Path) -> None:
    saved = Saved()
    saved.add(SIZE, "/r/old", 2)
    saved.data("/r/old", 2, b"short")
    saved.found.flushes.append(Flush(saved.at, 2, by_rename=False))
    assert left(saved, Left(saved.at, 10), tmp_path, EXT4) == {"old": OLD}


@pytest.mark.parametrize("result", [" = 0", "      = 0"])
def test_numbers_are_read_however_the_result_is_aligned(result: str) -> None:
    """As strace aligns that of a call that another thread has interrupted."""
    words = f"ftruncate(5</c/a (1) = b>, 4096){result}"
    assert numbers(words) == [4096]


def test_a_call_that_another_process_interrupts_keeps_its_numbers(tmp_path: Path) -> None:
    log = tmp_path / "strace.txt"
    path = "".join(f"\\x{one:02x}" for one in b"/c/a")
    log.write_text(
        f"71 1.000001 ftruncate(5<{path}>, 4096 <unfinished ...>\n"
        "72 1.000002 close(3) = 0\n"
        "71 1.000003 <... ftruncate resumed>)  = 0\n"
    )
    (call,) = (one for one in file_calls.calls(log) if one.name == "ftruncate")
    assert numbers(call.words) == [4096]
    assert call.files[0].path == "/c/a"
