"""`safetensors.torch.save_file`, which `save_model` calls too."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.wrapping import argument, path_of, saving


def patch(module: Any) -> None:
    module.save_file = saving(
        module.save_file,
        "safetensors",
        target=lambda args, kwargs: path_of(argument(args, kwargs, 1, "filename")),
        content=lambda args, kwargs: argument(args, kwargs, 0, "tensors"),
    )
