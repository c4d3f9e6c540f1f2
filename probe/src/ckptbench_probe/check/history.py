"""Which tensor had which value after which update."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ckptbench_probe.check.state import Optimizers, digest
from ckptbench_probe.process import PROCESS

KEPT = 200
"""Snapshots."""
MOST_OPTIMIZERS = 4
"""That are looked at before each of their steps. A program that has one for each parameter would hash its state a thousand times an update."""
FEWEST_ELEMENTS = 16
"""Smaller tensors, and those whose elements are all the same, may have the same value by chance: they tell no update."""


@dataclass(frozen=True)
class Snapshot:
    """The parameters and slots after an update, by the digest of their value."""

    update: int
    names: dict[str, frozenset[str]]


class History:
    def __init__(self, optimizers: Optimizers) -> None:
        self._optimizers = optimizers
        self.snapshots: deque[Snapshot] = deque(maxlen=KEPT)
        self._beside: list[weakref.ref[Any]] = []
        self._looked: Any = None
        self._recorded: Any = None
        self._versions: list[tuple[Any, int | None]] = []

    @property
    def update(self) -> int:
        """Updates that are done: since training began where the optimizer counts them, else since this process began."""
        step = self._optimizers.step()
        return PROCESS.updates.done if step is None else step

    def begins(self, optimizer: Any) -> bool:
        """Whether a state is kept before a step of this optimizer. Of a GAN, that between the steps of its two is one as well."""
        return any(one is optimizer for one in self._optimizers.alive()[:MOST_OPTIMIZERS])

    def look_beside(self) -> None:
        """A module that is no part of what is trained may hold older values, as an average does that has just begun: they are of this update too. It takes up to a tenth of a second, so it is done once an update."""
        now = PROCESS.updates.done, len(self._optimizers.alive())
        if self._looked != now:
            self._looked = now
            self._beside = [weakref.ref(module) for module in self._optimizers.beside()]

    def record(self) -> None:
        """Nothing where no tensor has changed since the last one: a checkpoint of many files asks for each."""
        now = self.update, PROCESS.updates.done
        if now == self._recorded and all(_same(*one) for one in self._versions):
            return
        tensors = [(name, getattr(one, "_local_tensor", one)) for name, one in self._tensors()]
        self._recorded = now
        self._versions = [
            (weakref.ref(one), _version(one)) for _, one in tensors if hasattr(one, "data_ptr")
        ]
        found: dict[str, set[str]] = {}
        for name, part in tensors:
            if _telling(part):
                found.setdefault(digest(part), set()).add(name)
        names = {value: frozenset(names) for value, names in found.items()}
        snapshot = Snapshot(self.update, names)
        if not self.snapshots or self.snapshots[-1] != snapshot:
            self.snapshots.append(snapshot)

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        for optimizer in self._optimizers.alive():
            yield from self._optimizers.tensors(optimizer).items()
        for number, module in enumerate(one() for one in self._beside):
            if module is not None:
                for name, tensor in module.named_parameters():
                    yield f"beside {number}:{name}", tensor


def _version(tensor: Any) -> int | None:
    """That changes with the values; None of a tensor that counts none."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return None


def _same(refer: Any, version: int | None) -> bool:
    tensor = refer()
    return tensor is not None and version is not None and _version(tensor) == version


def _telling(tensor: Any) -> bool:
    if not hasattr(tensor, "data_ptr") or tensor.numel() < FEWEST_ELEMENTS:
        return False
    flat = tensor.detach().reshape(-1)
    return not bool((flat == flat[0]).all())
