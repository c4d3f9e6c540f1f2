"""Files that a program, or its engine, opens to write by fsspec. The upload ends when the file is closed: training waits for that, too."""

from __future__ import annotations

import functools
from typing import Any, Callable

from ckptbench_probe import storage, stores
from ckptbench_probe.engines.calls import Call
from ckptbench_probe.files import LONGEST_TEXT, is_pointer
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS


def patch(module: Any) -> None:
    original = module.AbstractFileSystem.open

    @functools.wraps(original)
    def opened(self: Any, path: Any, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        file = original(self, path, mode, *args, **kwargs)
        harmless(_follow)(self, path, mode, file, "data" in kwargs)
        return file

    module.AbstractFileSystem.open = opened


def _follow(file_system: Any, path: Any, mode: str, file: Any, is_whole: bool) -> None:
    """`is_whole`: it was opened with all its bytes, and is never closed."""
    if "b" not in mode or not set(mode) & set("wax+"):  # for text, fsspec opens another below it
        return None
    url = storage.place(file_system.unstrip_protocol(path))
    if not storage.is_url(url) or not hasattr(file, "__dict__"):
        return None
    write = stores.begin(url, file_system)
    setattr(file, stores.MARK, write)
    if is_whole:
        return PROCESS.saves.stored(write, *_content(file, url))
    wrap_method(type(file), "close", closing)
    wrap_method(type(file), "_initiate_upload", _initiating)
    return None


def wrap_method(own: type, name: str, wrapped: Any) -> None:
    """Of the class that defines it, once."""
    for one in own.__mro__:
        method = one.__dict__.get(name)
        if method is not None:
            if not hasattr(method, stores.MARK):
                around = wrapped(method)
                setattr(around, stores.MARK, True)
                setattr(one, name, around)
            return


def closing(original: Call) -> Call:
    @functools.wraps(original)
    def close(self: Any) -> Any:
        write = harmless(stores.write_of)(self)
        if write is None or write.stored or write.closing:
            return original(self)
        size, text = harmless(_content)(self, write.url) or (0, None)
        write.closing = True
        try:
            result = original(self)
        except BaseException:
            PROCESS.saves.not_stored(write)
            raise
        finally:
            write.closing = False
        PROCESS.saves.stored(write, size, text)
        return result

    return close


def _content(file: Any, url: str) -> tuple[int, str | None]:
    """Its bytes, and the text of a pointer: both are gone when it is closed."""
    whole = getattr(file, "getvalue", None) or getattr(
        getattr(file, "buffer", None), "getvalue", None
    )
    size = len(file.getbuffer()) if hasattr(file, "getbuffer") else int(file.tell())
    return size, None if whole is None else text_of_pointer(url, size, whole)


def text_of_pointer(url: str, size: int, content: Callable[[], bytes]) -> str | None:
    """What an object says, if its name and size are those of a pointer."""
    if size > LONGEST_TEXT or not is_pointer(url):
        return None
    return content().decode(errors="replace").strip()


def _initiating(original: Call) -> Call:
    """An object that is larger than a block is uploaded in parts, which the store keeps until it is told that they are all."""

    @functools.wraps(original)
    def initiate(self: Any) -> Any:
        result = original(self)
        harmless(_in_parts)(self)
        return result

    return initiate


def _in_parts(file: Any) -> None:
    write = stores.write_of(file)
    if write is not None and file.tell() >= file.blocksize:
        PROCESS.saves.in_parts(write)
