"""From the calls that strace has recorded to the changes of a file system: which inode each name is at that time, and where each descriptor stands."""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from pathlib import Path

from ckptbench_probe.check.disk import (
    CREATE,
    DATA,
    FOLDER,
    LINK,
    NAME,
    REMOVE,
    RENAME,
    SIZE,
    Change,
    Content,
    Flush,
    Recorded,
    Sync,
    filled,
    renamed,
)
from ckptbench_probe.check.file_calls import Call, File, calls

_WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
_SYNCED = re.compile(r"O_D?SYNC")


class Reader:
    """Turns calls into changes of inodes."""

    def __init__(self, log: Path, marked: str) -> None:
        """`marked`: the folder in which the check's own marks are looked for."""
        self.found = Recorded()
        self._marked = marked + os.sep
        self.names: dict[str, int] = {}
        self._new = 0
        self._sizes: dict[int, int] = defaultdict(int)
        self._positions: dict[tuple[int, str], int] = {}
        self._by_sync: set[tuple[int, str]] = set()
        self._emptied: set[int] = set()
        """Of these, each close counts as a flush: the first one may be that of a reader, as the probe."""
        self._mapped: dict[int, int] = {}
        """By the address."""
        self._folders: dict[str, str] = {}
        """Current folder of each process, as it was seen last."""
        with log.open("rb") as self._log:
            for call in calls(log):
                self._take(call)
                self.found.end = call.returned

    def _take(self, call: Call) -> None:
        for file in call.files:
            if file.number == "AT_FDCWD":
                self._folders[call.process] = self._folders[""] = file.path
        handler = getattr(self, f"_on_{call.name.rstrip('0123456789')}", None)
        if call.name in _WRITES:
            self._on_any_write(call)
        elif handler is not None:
            handler(call)

    def _whole(self, call: Call, path: str, file: File | None = None) -> str:
        """A path as the kernel finds it, with links of its folders followed."""
        base = file.path if file else self._folders.get(call.process, self._folders.get("", "/"))
        parent, name = os.path.split(os.path.normpath(os.path.join(base, path)))
        return os.path.join(parent if parent in self.names else _real(parent), name)

    def _folder(self, path: str) -> int:
        """The folder of a path; the training may have found it there."""
        parent = os.path.dirname(path)
        if parent not in self.names:
            self.names[parent] = self._inode()
        return self.names[parent]

    def _inode(self) -> int:
        self._new += 1
        return self._new

    def _add(self, call: Call, kind: str, inode: int, path: str, **more: object) -> None:
        touches: tuple[int, ...] = (inode,)
        if kind not in (SIZE, DATA):
            touches = (*((inode,) if kind in (CREATE, FOLDER) else ()), self._folder(path))
        if kind == RENAME:
            touches = (*touches, self._folder(str(more["to"])))
        self.found.changes.append(
            Change(call.returned, kind, inode, path, touches=touches, at_ns=call.at_ns, **more)  # type: ignore[arg-type]
        )

    def _make(self, call: Call, kind: str, path: str, **more: object) -> int:
        inode = self._inode()
        self._add(call, kind, inode, path, **more)
        self.names[path] = inode
        return inode

    def _on_access(self, call: Call) -> None:
        path = call.path(0)
        if path.startswith(self._marked):
            self.found.marks.setdefault(os.path.basename(path), call.returned)

    def _on_open(self, call: Call) -> None:
        file = call.files[-1] if call.files else None
        if file is None or file.number != str(call.result) or not file.path.startswith("/"):
            return
        if re.match(r"/(dev/(?!shm/)|proc/|sys/)", file.path):
            return
        inode = self.names.get(file.path)
        if inode is None:
            if "O_CREAT" not in call.words or "O_TMPFILE" in call.words:
                return
            inode = self._make(call, CREATE, file.path)
        elif "O_TRUNC" in call.words:
            self._set_size(call, inode, file.path, 0)
        self._positions[inode, file.number] = 0
        if "O_APPEND" in call.words:
            self._positions[inode, file.number] = -1
        (self._by_sync.add if _SYNCED.search(call.words) else self._by_sync.discard)((inode, file.number))  # fmt: skip

    _on_openat = _on_creat = _on_open

    def _open_file(self, file: File) -> int | None:
        return None if file.removed else self.names.get(file.path)

    def _set_size(self, call: Call, inode: int, path: str, size: int) -> None:
        self._add(call, SIZE, inode, path, offset=size)
        self._sizes[inode] = size
        if size == 0:
            self._emptied.add(inode)

    def _on_ftruncate(self, call: Call) -> None:
        inode = self._open_file(call.files[0]) if call.files else None
        if inode is not None:
            self._set_size(call, inode, call.files[0].path, numbers(call.words)[0])

    def _on_truncate(self, call: Call) -> None:
        path = self._whole(call, call.path(0))
        if path in self.names:
            self._set_size(call, self.names[path], path, numbers(call.words)[0])

    def _on_fallocate(self, call: Call) -> None:
        inode = self._open_file(call.files[0]) if call.files else None
        if inode is not None and ", 0, " in call.words:
            size = sum(numbers(call.words)[-2:])
            if size > self._sizes[inode]:
                self._set_size(call, inode, call.files[0].path, size)

    def _on_lseek(self, call: Call) -> None:
        inode = self._open_file(call.files[0]) if call.files else None
        if inode is not None and self._positions.get((inode, call.files[0].number)) != -1:
            self._positions[inode, call.files[0].number] = call.result

    def _on_dup(self, call: Call) -> None:
        files = call.files
        inode = self._open_file(files[0]) if files else None
        if inode is not None:
            old, new = (inode, files[0].number), (inode, str(call.result))
            self._positions[new] = self._positions.get(old, 0)

    def _on_fcntl(self, call: Call) -> None:
        if "F_DUPFD" in call.words:
            self._on_dup(call)

    def _on_close(self, call: Call) -> None:
        inode = self._open_file(call.files[0]) if call.files else None
        if inode is not None and inode in self._emptied:
            self.found.flushes.append(Flush(call.returned, inode, by_rename=False))

    def _on_any_write(self, call: Call) -> None:
        if not call.files or call.result == 0:
            return
        file = call.files[0]
        inode = self._open_file(file)
        if inode is None:
            return
        key, size = (inode, file.number), call.result
        if call.name in ("write", "writev"):
            offset = self._moved(key, size)
        else:
            has_flags = call.name == "pwritev2" and "RWF_" not in call.words
            offset = numbers(call.words)[-2 if has_flags else -1]
        self._put(call, file, offset, call.texts, size)

    def _moved(self, key: tuple[int, str], size: int) -> int:
        """Where a descriptor stood that goes on by so many bytes."""
        offset = self._positions.get(key, 0)
        if offset == -1:
            return self._sizes[key[0]]
        self._positions[key] = offset + size
        return offset

    def _put(self, call: Call, file: File, offset: int, content: tuple[Content, ...], size: int) -> None:  # fmt: skip
        inode = self.names[file.path]
        synced = (inode, file.number) in self._by_sync
        self._add(call, DATA, inode, file.path, offset=offset, content=content, size=size, synced=synced)  # fmt: skip
        self._sizes[inode] = max(self._sizes[inode], offset + size)

    def _on_sendfile(self, call: Call) -> None:
        if len(call.files) == 2:  # else, to a socket
            target, source = call.files
            self._copy(call, source, target, _offsets(call.words, from_first=False))

    def _on_copy_file_range(self, call: Call) -> None:
        if len(call.files) == 2:
            source, target = call.files
            self._copy(call, source, target, _offsets(call.words, from_first=True))

    def _copy(self, call: Call, source: File, target: File, offsets: tuple[int, int]) -> None:
        inode, size = self._open_file(target), call.result
        if inode is None or size == 0:
            return
        begin, put = offsets
        other = self._open_file(source)
        if begin < 0:
            begin = self._moved((other, source.number), size) if other is not None else 0
        if put < 0:
            put = self._moved((inode, target.number), size)
        if other is not None:
            content = filled(self.of(other), self._log)[begin : begin + size]
        else:
            content = self._part(source.path, begin, size, inode, target)
        self._put(call, target, put, (content,), size)

    def _part(self, path: str, begin: int, size: int, inode: int, target: File) -> bytes:
        """Of a file that the training has only read."""
        try:
            with Path(path).open("rb") as file:
                file.seek(begin)
                return file.read(size)
        except OSError:
            self.found.unseen[inode] = target.path
            return bytes(size)

    def of(self, inode: int) -> list[Change]:
        """What has changed its content."""
        return [one for one in self.found.changes if one.inode == inode and one.kind in (SIZE, DATA)]  # fmt: skip

    def _on_rename(self, call: Call) -> None:
        source, target = self._two(call)
        inode = self.names.get(source)
        if inode is None or "RENAME_EXCHANGE" in call.words:
            return
        if target in self.names and self.names[target] != inode:
            self.found.flushes.append(Flush(call.returned, inode, by_rename=True))
        self._add(call, RENAME, inode, source, to=target)
        self.names = renamed(self.names, source, target)

    _on_renameat = _on_rename

    def _two(self, call: Call) -> tuple[str, str]:
        files = call.files if "at" in call.name else []
        first, second = files if len(files) == 2 else (None, None)
        return self._whole(call, call.path(0), first), self._whole(call, call.path(1), second)

    def _on_link(self, call: Call) -> None:
        source, target = self._two(call)
        if source in self.names:
            self._add(call, NAME, self.names[source], target)
            self.names[target] = self.names[source]

    _on_linkat = _on_link

    def _on_symlink(self, call: Call) -> None:
        base = call.files[0] if call.files else None
        self._make(call, LINK, self._whole(call, call.path(1), base), to=call.path(0))

    _on_symlinkat = _on_symlink

    def _on_mkdir(self, call: Call) -> None:
        base = call.files[0] if call.files else None
        self._make(call, FOLDER, self._whole(call, call.path(0), base))

    _on_mkdirat = _on_mkdir

    def _on_unlink(self, call: Call) -> None:
        path = self._whole(call, call.path(0), call.files[0] if call.files else None)
        if path in self.names:
            self._add(call, REMOVE, self.names[path], path)
            del self.names[path]

    _on_unlinkat = _on_rmdir = _on_unlink

    def _on_fsync(self, call: Call) -> None:
        if call.files and not call.files[0].removed:
            path = call.files[0].path
            inode = self.names.setdefault(path, 0) or self._inode()
            self.names[path] = inode
            self.found.syncs.append(Sync(call.entered, call.returned, inode))

    _on_fdatasync = _on_fsync

    def _on_sync(self, call: Call) -> None:
        self.found.syncs.append(Sync(call.entered, call.returned, None))

    _on_syncfs = _on_sync

    def _on_mmap(self, call: Call) -> None:
        """What is written to memory is seen on the disk alone, by `as_on_disk`."""
        inode = self._open_file(call.files[0]) if call.files else None
        if inode is not None and "MAP_SHARED" in call.words and "PROT_WRITE" in call.words:
            self._mapped[call.result] = inode
            size = numbers(call.words)[0]
            self.found.unseen[inode] = call.files[0].path
            self._put(call, call.files[0], 0, (bytes(size),), size)

    def _on_msync(self, call: Call) -> None:
        inode = self._mapped.get(int(call.words.partition("(")[2].partition(",")[0], 16))
        if inode is not None and "MS_SYNC" in call.words:
            self.found.syncs.append(Sync(call.entered, call.returned, inode))

    def _on_chdir(self, call: Call) -> None:
        self._folders[call.process] = self._whole(call, call.path(0))


@functools.lru_cache(maxsize=4096)
def _real(path: str) -> str:
    return os.path.realpath(path)


def numbers(words: str) -> list[int]:
    """Arguments that are whole numbers. strace aligns the result of a call that was resumed by blanks."""
    arguments = re.match(r"(.*\))\s+= ", words, re.DOTALL)
    return [
        int(one) for one in re.findall(r", (\d+)(?=[,)])", arguments[1] if arguments else words)
    ]


def _offsets(words: str, *, from_first: bool) -> tuple[int, int]:
    """Of the source and the target; -1: the descriptor's own."""
    found = [int(n) if n else -1 for n in re.findall(r">(?:\(deleted\))?, (?:\[(\d+)\]|NULL)", words)]  # fmt: skip
    if from_first:
        return found[0], found[1]
    return (found[0] if found else -1), -1
