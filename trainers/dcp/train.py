"""FSDP2, saved by DCP as https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html shows.

torchrun --nproc-per-node 2 train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 8, 6


class AppState(Stateful):
    def __init__(self, model: nn.Module, optimizer: Any, random: bool) -> None:
        self.model, self.optimizer, self.random = model, optimizer, random

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        random = {f"rank{dist.get_rank()}": torch.get_rng_state()} if self.random else {}
        return {"model": model, "optim": optimizer, **random}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])  # fmt: skip
        if self.random:
            torch.set_rng_state(state[f"rank{dist.get_rank()}"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--save-random-state", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    samples = UPDATES_OF_AN_EPOCH * BATCH * dist.get_world_size()
    data = TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,)))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * UPDATES_OF_AN_EPOCH)
    torch.manual_seed(1 + dist.get_rank())
    state = {"app": AppState(model, optimizer, options.save_random_state), "scheduler": scheduler}
    saved = [path for path in options.folder.glob("step-*") if (path / ".metadata").exists()]
    if saved:
        dcp.load(state, checkpoint_id=max(saved, key=lambda path: int(path.name[5:])))
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, BATCH, sampler=sampler, generator=torch.Generator())
    done = scheduler.last_epoch
    for epoch in range(done // UPDATES_OF_AN_EPOCH, EPOCHS):
        sampler.set_epoch(epoch)
        for step, (inputs, targets) in enumerate(loader, epoch * UPDATES_OF_AN_EPOCH + 1):
            if step <= done:
                continue
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            scheduler.step()
            if step % SAVE_EVERY == 0:
                dcp.save(state, checkpoint_id=options.folder / f"step-{step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
