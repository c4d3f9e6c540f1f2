"""`torch.distributed.checkpoint`: what each rank gives to a save, and what it has written, read by the engine's own reader.

A tensor is known by its name and the offset of this rank's part in the whole. Where several ranks have the same part, one writes it, and that
one compares it.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from ckptbench_probe import stores
from ckptbench_probe.check.given import CHECKER
from ckptbench_probe.check.one_save import Given, Values
from ckptbench_probe.engines.calls import first, then
from ckptbench_probe.engines.torch_dcp import target
from ckptbench_probe.harmless import harmless
from ckptbench_probe.storage import is_url

BATCH_BYTES = 1 << 30
"""So much of the file is in memory at once, or one tensor where that is larger."""


def patch(module: Any) -> None:
    module.save = CHECKER.around(module.save, partial(_begin, "dcp.save"), _written)
    module.async_save = CHECKER.around(
        module.async_save, partial(_begin, "dcp.async_save"), _follow
    )
    module._stateful_to_state_dict = then(module._stateful_to_state_dict, _taken)
    stager = module.DefaultStager
    # Staging in a thread of its own begins after a step, unless training waits for it.
    stager._stage = first(stager._stage, lambda *_, **__: CHECKER.let_step())


def _taken(state: Any) -> None:
    """Objects make their state when they are asked for it: here it is whole, and nothing is copied yet."""
    CHECKER.take(CHECKER.inside, lambda: _parts(state))


def _parts(state: Any) -> Values:
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict
    from torch.distributed.checkpoint.planner import WriteItemType
    from torch.distributed.checkpoint.planner_helpers import _create_write_items
    from torch.distributed.checkpoint.utils import find_state_dict_object

    flat, _ = flatten_state_dict(state)
    for name, value in flat.items():
        mesh = getattr(value, "device_mesh", None)
        if mesh is not None and mesh.get_coordinate() is None:
            continue  # this rank has no part of it
        for item in _create_write_items(name, value):
            if item.type == WriteItemType.BYTE_IO:
                yield name, value
            else:
                yield (
                    (name, tuple(item.index.offset)),
                    find_state_dict_object(flat, item.index),
                )


def _begin(kind: str, args: Any, kwargs: Any) -> Given | None:
    """None of a save that is part of another. What `async_save` calls in a thread of this process goes on with the save."""
    path = target(args, kwargs)
    if path is None or CHECKER.inside is not None:
        return None
    is_async = kind == "dcp.async_save"
    given = (None if is_async else CHECKER.taken_up(path)) or _new(kind, args, kwargs, path)
    if is_async and "PROCESS" not in str(kwargs.get("async_checkpointer_type")):
        CHECKER.goes_on(given)
    return given


def _new(kind: str, args: Any, kwargs: Any, path: str) -> Given | None:
    given = CHECKER.begin(kind, path)
    if given is not None:
        given.rank = _rank(kwargs)
        writer = type(kwargs.get("storage_writer")).__name__
        if writer not in ("NoneType", "FileSystemWriter", "FsspecWriter", "S3StorageWriter"):
            given.trouble = f"the reader that belongs to {writer} is not known"
    return given


def _rank(kwargs: dict[str, Any]) -> int:
    """In the group that saves: files begin with it."""
    distributed = sys.modules["torch.distributed"]
    if kwargs.get("no_dist") or not (distributed.is_available() and distributed.is_initialized()):
        return 0
    return int(distributed.get_rank(kwargs.get("process_group")))


def _written(given: Given, *_: Any) -> None:
    CHECKER.written(given, read)


def _follow(given: Given, result: Any, *_: Any) -> None:
    """A thread of this process calls `save`, whose return is the end; a process of its own does it unseen, and the future tells."""
    upload = getattr(result, "upload_completion", result)
    upload.add_done_callback(lambda future: _ended(given, future))


@harmless
def _ended(given: Given, future: Any) -> None:
    error = future.exception()
    if error is not None:
        CHECKER.failed(given, error)
    else:
        CHECKER.written(given, read)


def read(given: Given) -> Values:
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    from ckptbench_probe.check.dcp_planner import Planner

    names = list(given.digests or {})
    while names:
        planner = Planner(names, given.rank, BATCH_BYTES)
        _load_state_dict({}, _reader(given.path), planner=planner, no_dist=True)
        yield from planner.tensors.items()
        given.elsewhere += planner.elsewhere
        names = planner.left


def _reader(path: str) -> Any:
    """By the file system that the program writes with: it has the program's own options."""
    from torch.distributed.checkpoint import FileSystemReader

    if not is_url(path):
        return FileSystemReader(path)
    own = stores.file_system(path)
    if hasattr(own, "dcp_reader"):
        return own.dcp_reader(path)
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

    reader = FsspecReader(path)
    reader.fs.fs = own
    return reader
