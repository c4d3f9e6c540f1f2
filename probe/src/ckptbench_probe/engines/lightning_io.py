"""Where Lightning writes a file: on the thread that steps it is part of the save, on another its background part."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.wrapping import argument, saving


def patch(module: Any) -> None:
    def target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        path = argument(args, kwargs, 2, "path")
        return None if path is None else str(path)

    module.TorchCheckpointIO.save_checkpoint = saving(
        module.TorchCheckpointIO.save_checkpoint,
        "lightning.io",
        target=target,
        content=lambda args, kwargs: argument(args, kwargs, 1, "checkpoint"),
    )
