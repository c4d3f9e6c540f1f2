"""Try lines of `ckptbench decide --for` in the libraries that read them: hf, lightning or orbax.

python pasted_settings.py TOOL LINES, where LINES is a JSON object of what each is. What they keep and when they save is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import timedelta
from typing import Any


def hf(lines: dict[str, str]) -> dict[str, Any]:
    from transformers import TrainingArguments

    words = ", ".join([lines["Transformers"], lines["keep"], lines["at a signal"].partition(" (")[0]])  # fmt: skip
    made = eval(f"TrainingArguments('x', use_cpu=True, {words})", {"TrainingArguments": TrainingArguments})  # fmt: skip
    return {"steps": made.save_steps, "keep": made.save_total_limit, "at a signal": made.enable_jit_checkpoint}  # fmt: skip


def lightning(lines: dict[str, str]) -> dict[str, Any]:
    """Which versions are left of a training of 20 steps with one every 4."""
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.io import AsyncCheckpointIO

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any) -> Any:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    known = {"ModelCheckpoint": ModelCheckpoint, "timedelta": timedelta, "AsyncCheckpointIO": AsyncCheckpointIO, "Trainer": dict}  # fmt: skip
    saves, of_trainer = eval(lines["Lightning"], known)
    by_time = eval(lines["or by time"], known)[0]
    with tempfile.TemporaryDirectory() as folder:
        saves.dirpath = folder
        trainer = Trainer(max_steps=20, callbacks=saves, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, **of_trainer)  # fmt: skip
        trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(64, 1)))
        kept = sorted(int(path.split("step=")[1].split(".")[0]) for path in saves.best_k_models)
    return {"left": kept, "seconds": by_time._train_time_interval.total_seconds()}


def orbax(lines: dict[str, str]) -> dict[str, Any]:
    """The same, with a save tried after each step."""
    import numpy as np
    import orbax.checkpoint as ocp
    from orbax.checkpoint import checkpoint_managers

    known = {**vars(checkpoint_managers), "CheckpointManagerOptions": ocp.CheckpointManagerOptions}
    options, by_time = (
        eval(lines[name].partition("), which")[0] + ")", known) for name in ("Orbax", "or by time")
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        ocp.CheckpointManager(folder, options=options) as manager,
    ):
        for step in range(1, 21):
            manager.save(step, args=ocp.args.StandardSave({"w": np.ones(2)}))
        manager.wait_until_finished()
        kept = sorted(manager.all_steps())
    policy = by_time.save_decision_policy.policies[0]
    return {"left": kept, "seconds": policy.minimum_interval_secs}


print(json.dumps(globals()[sys.argv[1]](json.loads(sys.argv[2]))))
