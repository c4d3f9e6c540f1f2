"""Trains a few steps in the way that is named, each with a danger of its engine or without.

python probe_dangers.py WAY
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FOLDER = Path("checkpoints")
STEPS = 30
SAVE_EVERY = 10


def lightning(*, asynchronous: bool, failing: bool = False) -> None:
    """Keeps one checkpoint, as is its default. `failing`: the second cannot be written."""
    import lightning
    from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.io import AsyncCheckpointIO
    from torch.utils.data import DataLoader

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(512, 512)

        def training_step(self, inputs: Tensor, _: int) -> Tensor:
            time.sleep(0.01)  # so that a save has ended before the next begins
            return self.model(inputs).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    class Writer(TorchCheckpointIO):
        def __init__(self) -> None:
            self.removed = threading.Event()
            self.removed.set()  # before the first save there is no checkpoint to remove

        def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, **options: Any) -> None:
            if failing and f"step={2 * SAVE_EVERY}" in str(path):
                raise OSError(28, "No space left on device")
            if not failing:  # the dangerous order: the old one goes before the new one is written
                self.removed.wait(timeout=10)
                self.removed.clear()
            super().save_checkpoint(checkpoint, path, **options)

        def remove_checkpoint(self, path: Any) -> None:
            super().remove_checkpoint(path)
            self.removed.set()

    batches = [torch.randn(4, 512) for _ in range(STEPS)]
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[ModelCheckpoint(dirpath=FOLDER, every_n_train_steps=SAVE_EVERY)],
        plugins=[AsyncCheckpointIO(Writer())] if asynchronous else [],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(batches, batch_size=None))


def trainer(*, killed: bool) -> None:
    """`killed`: in the middle of its second save, when the weights are written, and nothing else is."""
    from torch.utils.data import Dataset
    from transformers import Trainer, TrainingArguments

    class Numbers(Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return 4 * STEPS

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"inputs": torch.full((8,), float(index))}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(8, 8)

        def forward(self, inputs: Tensor) -> dict[str, Tensor]:
            return {"loss": self.model(inputs).pow(2).mean()}

    class Dying(Trainer):
        def _save_optimizer_and_scheduler(self, *args: Any) -> None:
            if killed and self.state.global_step == 2 * SAVE_EVERY:
                time.sleep(0.2)  # longer than the probe keeps to itself that a save has begun
                os.kill(os.getpid(), signal.SIGKILL)
            super()._save_optimizer_and_scheduler(*args)

    arguments = TrainingArguments(
        output_dir=str(FOLDER), max_steps=STEPS, save_steps=SAVE_EVERY, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    Dying(model=Model(), args=arguments, train_dataset=Numbers()).train()


def last_checkpoint() -> None:
    from transformers.trainer_utils import get_last_checkpoint

    print(get_last_checkpoint(str(FOLDER)))


WAYS = {
    "lightning": lambda: lightning(asynchronous=False),
    "lightning_async": lambda: lightning(asynchronous=True),
    "lightning_fails": lambda: lightning(asynchronous=True, failing=True),
    "trainer": lambda: trainer(killed=False),
    "trainer_killed": lambda: trainer(killed=True),
    "last_checkpoint": last_checkpoint,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]]()
