"""`Trainer` of Hugging Face: a checkpoint is a folder, to which every rank writes. What it calls to write is part of it."""

from __future__ import annotations

import os
from typing import Any

from ckptbench_probe.engines.wrapping import of_first_rank, saving


def patch(module: Any) -> None:
    prefix = module.PREFIX_CHECKPOINT_DIR

    def target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        trainer = args[0]
        trial = args[2] if len(args) > 2 else kwargs.get("trial")
        return os.path.join(
            trainer._get_output_dir(trial=trial), f"{prefix}-{trainer.state.global_step}"
        )

    module.Trainer._save_checkpoint = saving(
        module.Trainer._save_checkpoint, "transformers", target=target, owned=of_first_rank
    )
