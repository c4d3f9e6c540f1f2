"""Where Lightning writes a file: on the thread that steps it is part of the save, on another its background part."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.calls import content_at, path_at
from ckptbench_probe.engines.wrapping import saving


def patch(module: Any) -> None:
    io = module.TorchCheckpointIO
    io.save_checkpoint = saving(
        io.save_checkpoint,
        "lightning.io",
        target=path_at(2, "path"),
        content=content_at(1, "checkpoint"),
    )
