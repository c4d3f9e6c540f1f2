"""Arm this process: see to it that modules of checkpoint engines are wrapped as soon as they are imported.

It runs at the start of every Python process of a training, so it imports nothing that Python has not imported yet.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` takes longer to import than all that is here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

ENGINES = {
    "torch.autograd": "torch_autograd",
    "torch.optim.optimizer": "torch_optimizer",
    "torch.amp.grad_scaler": "torch_scaler",
    "torch.serialization": "torch_save",
    "fsspec.spec": "fsspec_files",
    "fsspec.asyn": "fsspec_async",
    "s3torchconnector._s3client._s3client": "s3torchconnector",
    "torch.distributed.checkpoint.state_dict": "torch_state_dict",
    "torch.distributed.checkpoint.state_dict_saver": "torch_dcp",
    "safetensors.torch": "safetensors",
    "transformers.trainer": "transformers",
    "accelerate.accelerator": "accelerate",
    "lightning.pytorch.trainer.trainer": "lightning",
    "lightning.fabric.plugins.io.torch_io": "lightning_io",
    "pytorch_lightning.trainer.trainer": "lightning",
    "lightning_fabric.plugins.io.torch_io": "lightning_io",
    "keras.src.callbacks.callback_list": "keras_steps",
    "keras.src.models.model": "keras_saves",
    "orbax.checkpoint.checkpoint_manager": "orbax",
}
"""Of each module that defines what is measured, the module in `engines` that wraps it."""


class Finder:
    """Finds no module itself. Those of engines are found by the other finders, and wrapped once they are executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in ENGINES:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                _wrap_after_execution(name, spec.loader)
                return spec
        return None


def _wrap_after_execution(name: str, loader: Any) -> None:
    """The loader stays what it is: others ask it for source and data."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or not hasattr(loader, "__dict__"):
        return

    def exec_module(module: ModuleType) -> None:
        if module.__name__ == name:
            loader.__dict__.pop("exec_module", None)
        execute(module)
        if module.__name__ == name:
            wrap(name, module)

    loader.__dict__["exec_module"] = exec_module


def wrap(name: str, module: ModuleType) -> None:
    import os
    from importlib import import_module

    from ckptbench_probe.harmless import harmless
    from ckptbench_probe.variables import CHECK

    if os.environ.get(CHECK):  # first, so that it is called once an update or a save is counted
        check = harmless(import_module)("ckptbench_probe.check.armed")
        if check is not None:
            harmless(check.patch)(name, module)
    engine = harmless(import_module)(f"ckptbench_probe.engines.{ENGINES[name]}")
    if engine is not None:
        harmless(engine.patch)(module)


def arm() -> None:
    """Does nothing where the process is armed."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
