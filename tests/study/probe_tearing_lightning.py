"""Trains with Lightning, whose checkpoints a thread writes: of a copy, as Lightning does, or of the state itself, as plugins of one's own may.

python probe_tearing_lightning.py copied | shared
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO
from torch import nn
from torch.utils.data import DataLoader

STEPS, SAVE_EVERY = 12, 4


class Shared(TorchCheckpointIO):
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self._pool.submit(super().save_checkpoint, *args, **kwargs)

    def teardown(self) -> None:
        self._pool.shutdown()


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return self.model(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    way = sys.argv[1]
    lightning.seed_everything(1, verbose=False)
    saves = ModelCheckpoint(
        dirpath=".", filename=way + "-{step}", auto_insert_metric_name=False, every_n_train_steps=SAVE_EVERY, save_top_k=-1,
    )  # fmt: skip
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", callbacks=[saves], logger=False, enable_progress_bar=False, enable_model_summary=False,
        plugins=[{"copied": AsyncCheckpointIO, "shared": Shared}[way]()],
    )  # fmt: skip
    batches = [torch.randn(8, 64) for _ in range(STEPS)]
    trainer.fit(Module(), DataLoader(batches, batch_size=None))


if __name__ == "__main__":
    main()
