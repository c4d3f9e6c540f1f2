"""`torch.save` to a file. To memory it is no checkpoint: collectives and queues of processes use it so."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.wrapping import argument, path_of, saving


def patch(module: Any) -> None:
    module.save = saving(
        module.save,
        "torch.save",
        target=lambda args, kwargs: path_of(argument(args, kwargs, 1, "f")),
        content=lambda args, kwargs: argument(args, kwargs, 0, "obj"),
    )
