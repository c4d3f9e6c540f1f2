"""The registry of frameworks: what the study must know of each without importing it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ckptbench.frameworks.base import Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkEntry:
    """Where a framework's class is, how its ranks are started, and which formats it writes."""

    location: str
    """`module:class`; the module imports its framework, so it is loaded in the ranks alone."""
    launcher: Literal["spawn", "mpiexec"] = "spawn"
    formats: tuple[str, ...]
    """The first is what `format: default` means."""
    omissions: tuple[str, ...]
    """The parts of the state without which a restart trains on otherwise (`cells.OMISSIONS`): negative controls."""
    optional: bool = False
    """Its environment is compiled, so a config must name it to get it."""

    def load(self) -> type[Framework]:
        module, name = self.location.split(":")
        framework: type[Framework] = getattr(importlib.import_module(module), name)
        return framework


FRAMEWORKS = {
    "chainer": FrameworkEntry(
        location="ckptbench.frameworks.chainer:Chainer",
        launcher="mpiexec",
        formats=("npz", "npz_compressed", "hdf5", "hdf5_compressed"),
        omissions=("position", "momentum", "random", "statistics", "first_update"),
    ),
    "pytorch": FrameworkEntry(
        location="ckptbench.frameworks.pytorch:PyTorch",
        formats=("torch_save", "safetensors", "hdf5"),
        # Not the statistics: DistributedDataParallel sends rank 0's to all before every forward pass.
        omissions=("position", "momentum", "random"),
    ),
    "tensorflow": FrameworkEntry(
        location="ckptbench.frameworks.tensorflow:TensorFlow",
        formats=("hdf5", "keras", "tf_checkpoint"),
        omissions=("position", "momentum", "dropout", "statistics"),
    ),
    "horovod_pytorch": FrameworkEntry(
        location="ckptbench.frameworks.horovod_pytorch:HorovodPyTorch",
        formats=("torch_save", "safetensors", "hdf5"),
        omissions=("position", "momentum", "random", "statistics"),
        optional=True,
    ),
    "horovod_tensorflow": FrameworkEntry(
        location="ckptbench.frameworks.horovod_tensorflow:HorovodTensorFlow",
        formats=("hdf5", "keras", "tf_checkpoint"),
        omissions=("position", "momentum", "dropout", "statistics"),
        optional=True,
    ),
}
