"""In a rank of a training whose save `check fail` refuses: what goes to an object store, by the error that its client would raise.

Clients are those of fsspec, and s3torchconnector.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from ckptbench_probe import storage
from ckptbench_probe.engines.calls import Call, argument, then
from ckptbench_probe.engines.s3torchconnector import url_of
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.variables import FAIL_AT, KILL_IN

BUSY, DENIED = "503", "403"
REASONS = {BUSY: "Please reduce your request rate.", DENIED: "Access Denied"}
"""As S3 says them."""
UPLOADS = {
    "pipe": (0, "path"), "pipe_file": (0, "path"), "put": (1, "rpath"), "put_file": (1, "rpath"), "copy": (1, "path2"), "cp_file": (1, "path2"),
}  # fmt: skip
"""Calls of a file system that make an object: which argument names it."""
S3TORCHCONNECTOR = "s3torchconnector"
REMOVALS = {"rm": (0, "path"), "rm_file": (0, "path")}
"""A store that is busy may let them through."""
LOG = "refused-{}.jsonl"
"""In the folder of the traces, by the number of the process: a line for each path."""
_LOGGED: set[str] = set()


def patch_files(module: Any) -> None:
    """Of fsspec: what is written to a file is uploaded in parts, or whole when it is closed."""
    original = module.AbstractFileSystem.open

    @functools.wraps(original)
    def opened(self: Any, path: Any, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        file = original(self, path, mode, *args, **kwargs)
        if _is_asked() and set(mode) & set("wax+") and hasattr(type(file), "_upload_chunk"):
            harmless(_wrap_upload)(file, self.unstrip_protocol(path))
        return file

    module.AbstractFileSystem.open = opened


def _wrap_upload(file: Any, url: str) -> None:
    """Of this one file. The store is asked to begin an upload in parts only of one that is larger than a block."""
    initiate, upload = file._initiate_upload, file._upload_chunk

    @functools.wraps(initiate)
    def initiated() -> Any:
        if file.tell() >= file.blocksize:
            _admit([url])
        return initiate()

    @functools.wraps(upload)
    def uploaded(*args: Any, **kwargs: Any) -> Any:
        _admit([url])
        return upload(*args, **kwargs)

    file._initiate_upload, file._upload_chunk = initiated, uploaded


def patch_calls(module: Any) -> None:
    """fsspec gives each file system that is asynchronous its calls when it is made."""
    original = module.mirror_sync_methods
    module.mirror_sync_methods = functools.wraps(original)(
        lambda file_system: then(original, lambda _: _wrap_calls(file_system))(file_system)
    )


def _wrap_calls(file_system: Any) -> None:
    if not _is_asked():
        return
    calls = {**UPLOADS, **(REMOVALS if _asked()[0] == DENIED else {})}
    for name, target in calls.items():
        own = file_system.__dict__.get(name)
        if own is not None:
            setattr(file_system, name, _asking(own, file_system, target))


def _asking(original: Call, file_system: Any, target: tuple[int, str]) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = argument(args, kwargs, *target)
        _admit(map(file_system.unstrip_protocol, [named] if isinstance(named, str) else named or ()))  # fmt: skip
        return original(*args, **kwargs)

    return call


def patch_s3torchconnector(module: Any) -> None:
    """It learns when a file is closed that the store has refused it."""
    original, remove = module.S3Client.put_object, module.S3Client.delete_object

    @functools.wraps(original)
    def put_object(*args: Any, **kwargs: Any) -> Any:
        file = original(*args, **kwargs)

        def close() -> None:
            _admit([url_of(args[1:], kwargs)], S3TORCHCONNECTOR)
            type(file).close(file)

        if _is_asked():
            file.close = close
        return file

    @functools.wraps(remove)
    def delete_object(*args: Any, **kwargs: Any) -> Any:
        if _is_asked() and _asked()[0] == DENIED:
            _admit([url_of(args[1:], kwargs)], S3TORCHCONNECTOR)
        return remove(*args, **kwargs)

    module.S3Client.put_object, module.S3Client.delete_object = put_object, delete_object


@harmless
def _is_asked() -> bool:
    return FAIL_AT in os.environ and storage.is_url(os.environ[KILL_IN])


def _asked() -> tuple[str, int, int]:
    """How, and the updates between which the store refuses."""
    kind, begin, end, _ = os.environ[FAIL_AT].split()
    return kind, int(begin), int(end)


def _admit(urls: Iterable[str], client: str = "") -> None:
    """Raises the error of the client while the store refuses, if one of these is where the checkpoints are."""
    kind, begin, end = _asked()
    root = storage.place(os.environ[KILL_IN])
    inside = [url for url in map(storage.place, urls) if storage.is_in(url, root)]
    if inside and begin <= PROCESS.updates.done < end:
        harmless(_log)(inside, root)
        raise _error(kind, client or storage.scheme(root))


def _error(kind: str, client: str) -> Exception:
    """Programs may expect one of a certain class."""
    reason, modules = REASONS[kind], sys.modules
    if client == S3TORCHCONNECTOR:
        own: Exception = modules[f"{client}client._mountpoint_s3_client"].S3Exception(f"Client error: {reason}")  # fmt: skip
        return own
    if client == "gs" and "gcsfs.retry" in modules:
        own = modules["gcsfs.retry"].HttpError({"code": int(kind), "message": reason})
        return own if kind == BUSY else OSError(f"Forbidden: {reason}")
    return PermissionError(reason) if kind == DENIED else OSError(errno.EBUSY, reason)


def _log(urls: list[str], root: str) -> None:
    with open(os.path.join(PROCESS.trace.folder, LOG.format(os.getpid())), "a", encoding="utf-8") as file:  # fmt: skip
        for url in urls:
            if url not in _LOGGED:
                _LOGGED.add(url)
                file.write(json.dumps(url[len(root) :].lstrip("/")) + "\n")
