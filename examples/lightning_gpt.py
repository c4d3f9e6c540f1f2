"""The GPT of `gpt.py`, trained by Lightning. It saves in the foreground or in a thread, and resumes from the newest checkpoint.

python examples/lightning_gpt.py --folder checkpoints [--devices 2] [--asynchronous]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from digest import digest
from gpt import Gpt, batch, loss_of
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Gpt()

    def training_step(self, tokens: torch.Tensor, _: int) -> torch.Tensor:
        return loss_of(self.model, *tokens)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-4)


class Timed(lightning.Trainer):
    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        started = time.perf_counter()
        super().save_checkpoint(*args, **kwargs)
        if self.is_global_zero:
            print(
                f"step {self.global_step}: the save blocked {time.perf_counter() - started:.6f} s",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--asynchronous", action="store_true")
    options = parser.parse_args()
    lightning.seed_everything(1, verbose=False)
    torch.set_num_threads(1)
    data = torch.Generator().manual_seed(100)
    batches = [batch(data) for _ in range(options.steps)]
    saves = ModelCheckpoint(
        dirpath=options.folder, every_n_train_steps=options.save_every, save_top_k=1
    )
    trainer = Timed(
        max_steps=options.steps, accelerator="cpu", devices=options.devices, callbacks=[saves], logger=False, enable_progress_bar=False, enable_model_summary=False,
        plugins=[AsyncCheckpointIO()] if options.asynchronous else [],
    )  # fmt: skip
    module = Module()
    newest = max(options.folder.glob("*.ckpt"), key=lambda path: path.stat().st_mtime, default=None)
    trainer.fit(module, DataLoader(batches, batch_size=None), ckpt_path=newest)
    if trainer.is_global_zero:
        print(f"weights {digest(p.detach() for p in module.parameters())}")


if __name__ == "__main__":
    main()
