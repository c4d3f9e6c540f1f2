"""In a rank of a training that `check kill` kills: note what each save does to files, and end the training by SIGKILL at one of these events.

Python's audit events come before what they tell of. What PyTorch and safetensors write in C++ and Rust is seen by the call that writes it. A file that is to be
half written is written whole, and cut before anything else happens: a kill leaves the same, as both write from the begin to the end.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path
from typing import Any, Callable, NoReturn

from ckptbench_probe import storage
from ckptbench_probe.check.processes import end_below
from ckptbench_probe.check.refusing import Refuser
from ckptbench_probe.engines.calls import Call, Target, first
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.variables import FAIL_AT, KILL_AT, KILL_IN, seat

RECORD = "record"
FILE_EVENT, KILLED = "file_event", "killed_at"
WRITE, RENAME, REMOVE, LINK, END = "write", "rename", "remove", "link", "end"
BEFORE, BEGUN, HALF = "before", "begun", "half"
NATIVE = ("torch.save", "safetensors")
"""Kinds of files that are written without Python's `open`."""
ENDED = "ended-by-check"
"""File that the rank leaves which ends the training. Where all end after the same update, those of the others have their number behind it."""
UPDATED = "updated-"
"""Begin of the name of a file that is looked for after each update that is recorded, for strace to see. There is none."""
_WRITES = os.O_WRONLY | os.O_RDWR
_KINDS = {
    "open": WRITE, "os.rename": RENAME, "os.remove": REMOVE, "os.rmdir": REMOVE, "shutil.rmtree": REMOVE, "os.symlink": LINK, "os.link": LINK,
}  # fmt: skip


class Killer:
    def __init__(self, folder: str, at: str) -> None:
        self._root = storage.place(folder) if storage.is_url(folder) else os.path.realpath(folder)
        first_word, *words = at.split()
        self._saves = int(words[0]) if first_word == RECORD else 0
        """Until the one after it begins, events are only noted; 0: they may be those of the kill."""
        self._from, self._until = (0, sys.maxsize) if self._saves else (int(first_word), int(words[0]))  # fmt: skip
        self._point = (int(words[1]), int(words[2]), words[3]) if words[1:] else None
        self._begun: set[int] = set()
        """Updates after which saves began."""
        self._index = 0
        """Of the next event."""
        self._half = ""
        """File that is to be half written, and is being written."""
        self._busy = False
        self._refuser: Refuser | None = None

    def watch(self) -> None:
        PROCESS.saves.begin = first(PROCESS.saves.begin, self._begins)  # type: ignore[method-assign]
        sys.addaudithook(harmless(self._hear))
        PROCESS.before_end.append(self.settle)
        if os.environ.get(FAIL_AT) and not storage.is_url(self._root):
            self._refuser = Refuser(self._root, os.environ[FAIL_AT])

    def _begins(self, kind: str, path: str, *_: Any) -> None:
        if self._saves and self._inside(storage.place(path)):
            self._begun.add(PROCESS.updates.done)
            if len(self._begun) > self._saves:
                self._kill(END, "")

    def updated(self) -> None:
        """An update has ended, and with it what the save before it can still do."""
        self.settle()
        if self._saves:
            os.access(os.path.join(PROCESS.trace.folder, f"{UPDATED}{PROCESS.updates.done}"), os.F_OK)  # fmt: skip
        if self._refuser is not None:
            self._refuser.updated()
        if PROCESS.updates.done >= self._until:
            self._kill(END, "")

    @property
    def _looks(self) -> bool:
        return self._from <= PROCESS.updates.done < self._until and not self._busy

    def _inside(self, path: Any) -> str | None:
        """The path below the folder of checkpoints, if it is there."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return None
        if storage.is_url(self._root):
            return path if isinstance(path, str) and storage.is_in(path, self._root) else None
        parent, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        whole = os.path.join(os.path.realpath(parent), name)
        return whole if whole.startswith(self._root + os.sep) else None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        what = _KINDS.get(event)
        if what is None or not self._looks:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
            return
        if event != "open" and set(arguments[2 if what in (RENAME, LINK) else 1 :]) - {None, -1}:
            return  # relative to an open folder, as below `shutil.rmtree`
        paths = [self._inside(path) for path in arguments[: 2 if what in (RENAME, LINK) else 1]]
        path = next(filter(None, reversed(paths)), None)
        if path is None or (what == REMOVE and not os.path.lexists(path)):
            return
        how = self._comes(what, path)
        if how == BEGUN:
            os.close(self._quietly(lambda: os.open(path, arguments[2], 0o644)))
            self._kill(what, path)
        if how == HALF and what == WRITE:
            self._half = path
        elif how == HALF:
            self._remove_one(path)
            self._kill(what, path)

    def _quietly(self, call: Callable[[], Any]) -> Any:
        self._busy = True
        try:
            return call()
        finally:
            self._busy = False

    def _remove_one(self, folder: str) -> None:
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        if files:
            self._quietly(files[0].unlink)

    def _comes(self, what: str, path: str) -> str:
        """How far this event is to get, if it is the last one; empty where it is another. Ends the training before it, if that is asked for."""
        self.settle()
        index, self._index = self._index, self._index + 1
        PROCESS.trace.write(
            FILE_EVENT, rank=_rank(), updates=PROCESS.updates.done, index=index, what=what,
            path=os.path.relpath(path, self._root), folder=os.path.isdir(path),
        )  # fmt: skip
        if self._point is None or self._point[:2] != (_rank(), index):
            return ""
        if self._point[2] == BEFORE:
            self._kill(what, path)
        return self._point[2]

    def settle(self) -> None:
        """Something else comes after the file that is to be half written."""
        if self._half:
            self.cut(self._half)

    def writes(self, path: str) -> bool:
        """A file, without Python's `open`. Whether it is to be cut when it is written."""
        inside = self._inside(path)
        if inside is None or not self._looks:
            return False
        how = self._comes(WRITE, inside)
        if how == BEGUN:
            self._quietly(lambda: Path(inside).write_bytes(b""))
            self._kill(WRITE, inside)
        return how == HALF

    def cut(self, path: str) -> NoReturn:
        self._quietly(lambda: os.truncate(path, os.path.getsize(path) // 2))
        self._kill(WRITE, path)

    def _kill(self, what: str, path: str) -> NoReturn:
        """All processes: the check ends those of other ranks."""
        self._busy = True
        PROCESS.trace.write(KILLED, what=what, path=path, updates=PROCESS.updates.done)
        Path(PROCESS.trace.folder, ENDED).touch()
        end_below(os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a process outlives no SIGKILL")


def _rank() -> int:
    own = seat()
    return own.rank if own else 0


_KILLERS: list[Killer] = []


def killer() -> Killer | None:
    """Of this process, from when it first updates on. None where no kill is asked for."""
    folder = os.environ.get(KILL_IN)
    if folder and not _KILLERS:
        _KILLERS.append(Killer(folder, os.environ[KILL_AT]))
        _KILLERS[0].watch()
    return _KILLERS[0] if _KILLERS else None


def native(original: Call, kind: str, target: Target) -> Call:
    """Around a call that saves, if its file is written without Python's `open`."""
    if kind not in NATIVE:
        return original

    def named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Not of a file that the program has opened, which Python tells of."""
        paths = [one for one in (*args, *kwargs.values()) if isinstance(one, (str, os.PathLike))]
        return target(args, kwargs) if paths else None

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        path, own = harmless(named)(args, kwargs), harmless(killer)()
        if own is None or path is None:
            return original(*args, **kwargs)
        is_cut = harmless(own.writes)(path)
        result = original(*args, **kwargs)
        if is_cut:
            harmless(own.cut)(path)
        return result

    return save
