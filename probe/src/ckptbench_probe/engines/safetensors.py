"""`safetensors.torch.save_file`, which `save_model` calls too."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.calls import content_at, path_at
from ckptbench_probe.engines.wrapping import saving


def patch(module: Any) -> None:
    module.save_file = saving(
        module.save_file,
        "safetensors",
        target=path_at(1, "filename"),
        content=content_at(0, "tensors"),
    )
