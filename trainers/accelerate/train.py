"""A loop with Hugging Face accelerate, resumed as https://huggingface.co/docs/accelerate/usage_guides/checkpoint shows.

torchrun --nproc-per-node 2 train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 8, 6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seedable-sampler", action="store_true")
    options = parser.parse_args()
    accelerator = Accelerator(
        cpu=True,
        project_config=ProjectConfiguration(
            project_dir=str(options.folder), automatic_checkpoint_naming=True, total_limit=2
        ),
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=options.seedable_sampler),
    )
    set_seed(1)
    samples = UPDATES_OF_AN_EPOCH * BATCH * accelerator.num_processes
    data = TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,)))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * UPDATES_OF_AN_EPOCH * accelerator.num_processes)  # fmt: skip
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    accelerator.register_for_checkpointing(scheduler)

    done = 0
    saved = sorted(options.folder.glob("checkpoints/checkpoint_*"), key=lambda path: int(path.name.split("_")[1]))  # fmt: skip
    if saved:
        accelerator.load_state()  # the newest one
        done = SAVE_EVERY * (int(saved[-1].name.split("_")[1]) + 1)
        accelerator.project_configuration.iteration = done // SAVE_EVERY
    for epoch in range(done // UPDATES_OF_AN_EPOCH, EPOCHS):
        model.train()
        loader.set_epoch(epoch)
        skipped = done % UPDATES_OF_AN_EPOCH if epoch == done // UPDATES_OF_AN_EPOCH else 0
        batches = accelerator.skip_first_batches(loader, skipped) if skipped else loader
        for number, (inputs, targets) in enumerate(batches, epoch * UPDATES_OF_AN_EPOCH + skipped + 1):  # fmt: skip
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            if number % SAVE_EVERY == 0:
                accelerator.save_state()
    accelerator.end_training()


if __name__ == "__main__":
    main()
