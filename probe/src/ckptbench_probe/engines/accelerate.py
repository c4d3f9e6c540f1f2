"""`Accelerator.save_state`: a folder, to which every rank writes."""

from __future__ import annotations

import os
from typing import Any

from ckptbench_probe.engines.calls import argument
from ckptbench_probe.engines.wrapping import of_first_rank, saving


def patch(module: Any) -> None:
    module.Accelerator.save_state = saving(
        module.Accelerator.save_state, "accelerate", target=_target, owned=of_first_rank
    )


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Where accelerate names the folders itself, it does not ask for one."""
    accelerator = args[0]
    if accelerator.project_configuration.automatic_checkpoint_naming:
        name = f"checkpoint_{accelerator.save_iteration}"
        return os.path.join(accelerator.project_dir, "checkpoints", name)
    folder = argument(args, kwargs, 1, "output_dir")
    return None if folder is None else str(folder)
