"""The registry of frameworks: what the study must know of each without importing it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ckptbench.frameworks.base import Framework


@dataclass(frozen=True, slots=True)
class FrameworkEntry:
    """Where a framework's class is, how its ranks are started, and which formats it writes."""

    location: str
    """`module:class`; the module imports its framework, so it is loaded in the ranks alone."""
    launcher: Literal["spawn", "mpiexec"]
    formats: tuple[str, ...]
    """The first is what `format: default` means."""

    def load(self) -> type[Framework]:
        module, name = self.location.split(":")
        framework: type[Framework] = getattr(importlib.import_module(module), name)
        return framework


# fmt: off
FRAMEWORKS = {
    "chainer": FrameworkEntry("ckptbench.frameworks.chainer:Chainer", "mpiexec", ("npz", "npz_compressed", "hdf5", "hdf5_compressed")),
    "pytorch": FrameworkEntry("ckptbench.frameworks.pytorch:PyTorch", "spawn", ("torch_save", "safetensors", "hdf5")),
    "tensorflow": FrameworkEntry("ckptbench.frameworks.tensorflow:TensorFlow", "spawn", ("hdf5", "keras", "tf_checkpoint")),
}
# fmt: on
