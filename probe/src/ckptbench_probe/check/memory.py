"""Where the values of tensors lie, and whether training changes them there."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.check.state import Optimizers

Place = tuple[int, int]
"""First address and the one after the last, of a storage, which all views of a tensor share."""


def place(value: Any) -> Place | None:
    """None where a tensor has no memory of its own, and of what is none."""
    storage = getattr(getattr(value, "_local_tensor", value), "untyped_storage", None)
    if storage is not None:
        own = storage()
        first, size = int(own.data_ptr()), int(own.nbytes())
    elif hasattr(value, "__array_interface__"):
        first, size = int(value.__array_interface__["data"][0]), int(value.nbytes)
    else:
        return None
    return (first, first + size) if first else None


class Memory:
    """Of the parameters and slots of all optimizers."""

    def __init__(self, optimizers: Optimizers) -> None:
        tensors = list(optimizers.tensors().values())
        self._places = [found for found in map(place, tensors) if found]
        self.objects = {id(one) for one in tensors}
        """Which are saved again and again, so that they do not say which hand-over is meant."""
        self.containers = {id(slots) for one in optimizers.alive() for slots in one.state.values()}
        """An optimizer hands out its own dicts of slots, too."""

    def holds(self, value: Any) -> bool:
        own = place(value)
        return own is not None and any(
            first < own[1] and own[0] < last for first, last in self._places
        )
