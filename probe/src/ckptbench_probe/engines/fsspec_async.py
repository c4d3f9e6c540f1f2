"""Objects that a program writes in one call, as by `fs.pipe`, or that it uploads from a file, by `fs.put`, to a store that fsspec reaches asynchronously.

Of other stores, fsspec opens a file for it: see `fsspec_files`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

from ckptbench_probe import storage, stores
from ckptbench_probe.engines.calls import Call, argument, then
from ckptbench_probe.engines.fsspec_files import text_of_pointer
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS

Stored = tuple[stores.Write, int, "str | None"]
"""An object that is being stored, its bytes, and the text of a pointer."""
CALLS = ("pipe", "pipe_file", "put", "put_file")


def patch(module: Any) -> None:
    """fsspec gives each file system its calls when it is made."""
    original = module.mirror_sync_methods
    module.mirror_sync_methods = functools.wraps(original)(
        lambda file_system: then(original, lambda _: _wrap(file_system))(file_system)
    )


def _wrap(file_system: Any) -> None:
    for name in CALLS:
        own = file_system.__dict__.get(name)
        if own is not None:
            setattr(file_system, name, _storing(own, file_system, is_file=name.startswith("put")))


def _storing(original: Call, file_system: Any, *, is_file: bool) -> Call:
    @harmless
    def begun(args: Any, kwargs: Any) -> list[Stored]:
        found = _uploads(args, kwargs) if is_file else _values(args, kwargs)
        return [one for path, source in found if (one := _begun(file_system, path, source))]

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = begun(args, kwargs) or []
        try:
            result = original(*args, **kwargs)
        except BaseException:
            for write, *_ in found:
                harmless(stores.end)(write)
            raise
        for one in found:
            PROCESS.saves.stored(*one)
        return result

    return call


def _values(args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    """The path and the bytes of each object."""
    path, value = argument(args, kwargs, 0, "path"), argument(args, kwargs, 1, "value")
    yield from path.items() if isinstance(path, dict) else [(path, value)]


def _uploads(args: Any, kwargs: Any) -> Iterator[tuple[str, str]]:
    """The path of each object, and that of its file. Of a folder, the last parts of the paths: whether its own name is among them is up to the store."""
    source, target = argument(args, kwargs, 0, "lpath"), argument(args, kwargs, 1, "rpath")
    if not isinstance(source, (str, os.PathLike)) or not isinstance(target, str):
        return
    source = os.fspath(source)
    if os.path.isfile(source):
        yield target + os.path.basename(source) if target.endswith("/") else target, source
    for folder, _, names in os.walk(source):
        for name in names:
            own = os.path.join(folder, name)
            yield f"{target.rstrip('/')}/{os.path.relpath(own, source)}", own


def _begun(file_system: Any, path: str, source: Any) -> Stored | None:
    """`source`: the bytes, or the path of their file."""
    url = storage.place(file_system.unstrip_protocol(path))
    if not storage.is_url(url):
        return None
    if isinstance(source, str):
        return stores.begin(url, file_system), os.path.getsize(source), None
    text = text_of_pointer(url, len(source), lambda: bytes(source))
    return stores.begin(url, file_system), len(source), text
