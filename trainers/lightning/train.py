"""A network under Lightning with ModelCheckpoint, resumed as https://lightning.ai/docs/pytorch/stable/common/checkpointing_basic.html shows.

python train.py --folder checkpoints --devices 2
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 8, 6


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))  # fmt: skip

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        inputs, targets = batch
        return nn.functional.cross_entropy(self.layers(inputs), targets)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * UPDATES_OF_AN_EPOCH)  # fmt: skip
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--save-when-stopped", action="store_true")
    parser.add_argument("--stateful-loader", action="store_true")
    options = parser.parse_args()
    lightning.seed_everything(1)
    samples = UPDATES_OF_AN_EPOCH * BATCH * options.devices
    data = TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,)))
    loader = StatefulDataLoader if options.stateful_loader else DataLoader
    saves = ModelCheckpoint(
        dirpath=options.folder,
        every_n_train_steps=SAVE_EVERY,
        save_last=True,
        save_on_exception=options.save_when_stopped,
    )
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=options.devices,
        callbacks=[saves],
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(), loader(data, batch_size=BATCH, shuffle=True), ckpt_path="last")


if __name__ == "__main__":
    main()
