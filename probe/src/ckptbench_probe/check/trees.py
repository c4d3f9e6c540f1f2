"""Values of a state that is made of dicts, lists and, with JAX, of any registered type.

A value is known by its path: the tuple of keys that lead to it. 7 and "7" are different keys, and "a.b" is one key.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None))
Path = tuple[Any, ...]


def is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def is_plain(value: Any) -> bool:
    """Also a list of such values, which counts as one value."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(one, PLAIN) for one in value)
    return isinstance(value, PLAIN)


def children(value: Any) -> list[tuple[Any, Any]] | None:
    """Keys and parts of a dict or a list; None of anything else. A key that is an object has its type and its place for a name."""
    if isinstance(value, dict):
        return [
            (key if isinstance(key, (*PLAIN, tuple)) else (type(key).__name__, place), part)
            for place, (key, part) in enumerate(value.items())
        ]
    return list(enumerate(value)) if isinstance(value, (list, tuple)) else None


def paths(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Tensors, plain values, lists of plain values, and objects."""
    parts = children(value)
    if parts is None or (parts and not isinstance(value, dict) and is_plain(value)):
        yield path, value
        return
    for key, part in parts:
        yield from paths(part, (*path, key))


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What is no dict, list or tuple, by its name: `name`, and the keys with a dot between them. Keys that collide then are written as in Python."""
    if children(value) is None:
        yield name, value
        return
    found = list(_every(value, ()))
    shown = names_of([path for path, _ in found])
    for path, leaf in found:
        start = f"{name}." if name and path and not name.endswith("/") else name
        yield start + shown[path], leaf


def _every(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    parts = children(value)
    if parts is None:
        yield path, value
        return
    for key, part in parts:
        yield from _every(part, (*path, key))


def names_of(found: Iterable[Path]) -> dict[Path, str]:
    """A text for each, no two alike."""
    short = {path: ".".join(map(_text, path)) for path in found}
    often = Counter(short.values())
    return {
        path: name if often[name] == 1 else "".join(f"[{key!r}]" for key in path)
        for path, name in short.items()
    }


def _text(key: Any) -> str:
    """The part of a tensor that a rank has is named by the tensor."""
    return str(key)


def arrays(state: Any) -> Iterator[tuple[str, Any]]:
    jax = sys.modules.get("jax")
    if jax is None:
        yield from leaves(state)
        return
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        yield jax.tree_util.keystr(path), leaf
