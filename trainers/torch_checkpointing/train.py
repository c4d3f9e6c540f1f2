"""A loop that torch_checkpointing saves, as https://github.com/meta-pytorch/torch_checkpointing/blob/main/docs/tutorials.md shows.

torchrun --nproc-per-node 2 train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch_checkpointing import CheckpointManager, CheckpointStagerConfig
from torch_checkpointing.config import AsyncCheckpointSaverConfig
from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 8, 6


def latest_checkpoint(root: Path) -> str | None:
    found = [path for path in root.glob("step_*") if re.fullmatch(r"step_\d+", path.name)]
    return str(max(found, key=lambda path: int(path.name[5:]))) if found else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    samples = UPDATES_OF_AN_EPOCH * BATCH * dist.get_world_size()
    data = TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,)))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * UPDATES_OF_AN_EPOCH)
    staging = CheckpointStagerConfig(use_pinned_memory=False, use_non_blocking_copy=False)  # CPU
    storage = LocalFileSystemStorageConfig(use_direct_io=False)  # ext4 refuses it
    saves = AsyncCheckpointSaverConfig(staging_config=staging)
    manager = CheckpointManager.Config(save=saves, storage_config=storage).build()
    done = 0
    resume_from = latest_checkpoint(options.folder)
    if resume_from is not None:
        into = {"model": model.state_dict(), "optimizer": None, "scheduler": None, "step": 0}
        restored = manager.load(resume_from, into=into)
        optimizer.load_state_dict(restored["optimizer"])
        scheduler.load_state_dict(restored["scheduler"])
        done = int(restored["step"])
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, BATCH, sampler=sampler)
    for epoch in range(done // UPDATES_OF_AN_EPOCH, EPOCHS):
        sampler.set_epoch(epoch)
        for step, (inputs, targets) in enumerate(loader, epoch * UPDATES_OF_AN_EPOCH + 1):
            if step <= done:
                continue
            optimizer.zero_grad()
            nn.functional.cross_entropy(ddp(inputs), targets).backward()
            with manager.lock():  # the state must not change while it is staged
                optimizer.step()
            scheduler.step()
            if step % SAVE_EVERY == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "step": step}  # fmt: skip
                manager.save(str(options.folder / f"step_{step}"), state)
    manager.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
