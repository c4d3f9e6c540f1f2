"""`Accelerator.save_state`: a folder, to which every rank writes."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.wrapping import argument, of_first_rank, saving


def patch(module: Any) -> None:
    def target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        folder = argument(args, kwargs, 1, "output_dir") or args[0].project_dir
        return None if folder is None else str(folder)

    module.Accelerator.save_state = saving(
        module.Accelerator.save_state, "accelerate", target=target, owned=of_first_rank
    )
