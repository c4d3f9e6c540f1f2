"""Versions in a checkpoint store, whose contents are functions of their steps, and what befalls them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from strategies import IDENTITY

from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import Version
from ckptbench.run.events import File
from ckptbench.run.position import Position

NESTED = ("index", "state/0/values", "state/places")


def staged(store: CheckpointStore, step: int) -> Path:
    """The partial folder of the version of `step`, which is there."""
    folder = store.partial_folder(step)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(store: CheckpointStore, step: int, *, size: int = 5000) -> Version:
    """A version whose two files are functions of its step."""
    staging = staged(store, step)
    random = np.random.default_rng(step)
    (staging / "model.bin").write_bytes(random.bytes(size))
    (staging / "rank-0.safetensors").write_bytes(random.bytes(100))
    position = Position(step=step, epoch=step // 4, step_in_epoch=step % 4)
    files = [
        File(name="model.bin", kind="state", bytes=size),
        File(name="rank-0.safetensors", kind="own", rank=0, bytes=100),
    ]
    return commit(store, staging, files, position, format="bin")


def write_with_folders(store: CheckpointStore, step: int) -> Version:
    """A version whose state lies in folders, as some engines write it."""
    staging = staged(store, step)
    for name in NESTED:
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_bytes(np.random.default_rng(step).bytes(1000))
    files = [File(name=name, kind="state", bytes=1000) for name in NESTED]
    position = Position(step=step, epoch=0, step_in_epoch=step)
    return commit(store, staging, files, position, format="folders")


def commit(
    store: CheckpointStore, staging: Path, files: list[File], position: Position, *, format: str
) -> Version:
    version = store.sync(
        staging, files, identity=IDENTITY, position=position, world_size=1, format=format
    ).version
    store.commit(staging, version)
    return version


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip_bit(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)


class Busy:
    """Files whose names begin with `.nfs` cannot be removed until `free`, as those that another client of NFS has open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        unlink = os.unlink

        def refuse(path: Any, **named: Any) -> None:
            if Path(path).name.startswith(".nfs"):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
            unlink(path, **named)

        monkeypatch.setattr(os, "unlink", refuse)

    def hold(self, folder: Path) -> Path:
        """Leave such a file of 7 bytes in the folder."""
        (left := folder / ".nfs0001").write_bytes(b"in use.")
        return left

    def free(self) -> None:
        self._monkeypatch.undo()


def fails(*_: object) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO))  # as `read` does: it names no file
