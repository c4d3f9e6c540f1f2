"""A plain loop that ravex saves and resumes by its decorator, as https://github.com/JHNMACHINE/ravex shows.

python train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import os

import ravex
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 8, 6


@ravex.train_loop(checkpoint_every=SAVE_EVERY, preemption_handler=True)
def train() -> None:
    torch.manual_seed(1)
    samples = UPDATES_OF_AN_EPOCH * BATCH
    data = TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,)))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * UPDATES_OF_AN_EPOCH)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            scheduler.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    os.environ["RAVEX_STORAGE_PATH"] = parser.parse_args().folder
    train()
