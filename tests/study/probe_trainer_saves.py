"""Trains five steps before each save of accelerate and Lightning's Fabric.

python probe_trainer_saves.py
"""

from __future__ import annotations

from collections.abc import Callable

import lightning
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    names = ProjectConfiguration("project", automatic_checkpoint_naming=True, total_limit=1)
    named, plain = Accelerator(project_config=names), Accelerator()
    fabric = lightning.Fabric(accelerator="cpu")
    model = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    for accelerator in (named, plain):
        accelerator.prepare(model, optimizer)
    saves: list[Callable[[], object]] = [
        named.save_state,
        named.save_state,
        lambda: plain.save_state("state"),
        lambda: plain.save_model(model, "model"),
        lambda: fabric.save("fabric.ckpt", {"model": model.state_dict()}),
    ]
    for save in saves:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 64)).sum().backward()
            optimizer.step()
        save()


if __name__ == "__main__":
    main()
