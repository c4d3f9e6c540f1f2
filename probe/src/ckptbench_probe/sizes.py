"""How many bytes a state has, by data type; read from the tensors that a save is given."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

DEEPEST = 12
"""Levels of dicts and lists that are looked into."""


def bytes_by_type(content: Any) -> dict[str, int]:
    """Of every tensor or array in dicts, lists and tuples; of a tensor that is spread over ranks, the part of this rank."""
    found: Counter[str] = Counter()
    seen: set[tuple[int, int]] = set()
    _add(content, found, seen, DEEPEST)
    return dict(found)


def _add(content: Any, found: Counter[str], seen: set[tuple[int, int]], levels: int) -> None:
    if isinstance(content, dict):
        parts: Any = content.values()
    elif isinstance(content, (list, tuple, set)):
        parts = content
    else:
        local = getattr(content, "_local_tensor", content)
        size = _size(local)
        if size is not None and size[1] not in seen:
            seen.add(size[1])
            found[_type_name(local)] += size[0]
        return
    if levels:
        for part in parts:
            _add(part, found, seen, levels - 1)


def _type_name(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]


def _size(array: Any) -> tuple[int, tuple[int, int]] | None:
    """Bytes, and by what the same memory is known again; None where it is no array."""
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        return None
    size = getattr(array, "nbytes", None)
    if isinstance(array.dtype, str):  # a variable of Keras, which does not say its size
        bits = re.search(r"\d+", array.dtype)
        size = math.prod(map(int, array.shape)) * (int(bits[0]) if bits else 8) // 8
    if not isinstance(size, int):
        return None
    place = getattr(array, "data_ptr", None)
    try:
        address = place() if callable(place) and size else id(array)
    except RuntimeError:  # of a tensor without memory, such as one of the device "meta"
        address = id(array)
    return size, (address, size)


def state_of(optimizer: Any) -> dict[str, dict[str, int]]:
    """Bytes that a whole state must have, by what they are and by type: weights, and each slot of the optimizer. All ranks' parts together."""
    found: dict[str, Counter[str]] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            _count(found, "weights", parameter)
            for name, value in optimizer.state.get(parameter, {}).items():
                _count(found, str(name), value)
    return {name: dict(types) for name, types in found.items()}


def _count(found: dict[str, Counter[str]], name: str, tensor: Any) -> None:
    """`numel` of a tensor that is spread over ranks is that of the whole."""
    if hasattr(tensor, "numel") and hasattr(tensor, "element_size"):
        types = found.setdefault(name, Counter())
        types[_type_name(tensor)] += tensor.numel() * tensor.element_size()
