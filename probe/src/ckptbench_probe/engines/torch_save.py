"""`torch.save` to a file. To memory it is no checkpoint: collectives and queues of processes use it so."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.calls import content_at, path_at
from ckptbench_probe.engines.wrapping import saving


def patch(module: Any) -> None:
    module.save = saving(
        module.save, "torch.save", target=path_at(1, "f"), content=content_at(0, "obj")
    )
