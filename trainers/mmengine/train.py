"""A network under MMEngine's Runner, resumed as https://mmengine.readthedocs.io/en/latest/common_usage/resume_training.html shows.

python train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import TensorDataset

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 8, 6


class Classifier(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))  # fmt: skip

    def forward(self, inputs: Tensor, targets: Tensor, mode: str) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(self.layers(inputs), targets)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(1)
    samples = UPDATES_OF_AN_EPOCH * BATCH
    data = TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,)))
    runner = Runner(
        model=Classifier(),
        work_dir=str(options.folder),
        train_dataloader={
            "dataset": data,
            "batch_size": BATCH,
            "num_workers": 0,
            "sampler": {"type": "DefaultSampler", "shuffle": True},
            "collate_fn": {"type": "default_collate"},
        },
        train_cfg={"by_epoch": True, "max_epochs": EPOCHS},
        optim_wrapper={"optimizer": {"type": "AdamW", "lr": 1e-3}},
        param_scheduler={
            "type": "CosineAnnealingLR",
            "T_max": EPOCHS * UPDATES_OF_AN_EPOCH,
            "by_epoch": False,
        },
        default_hooks={
            "checkpoint": {
                "type": "CheckpointHook",
                "interval": SAVE_EVERY,
                "by_epoch": False,
                "max_keep_ckpts": 2,
            }
        },
        resume=True,
        randomness={"seed": 1},
    )
    runner.train()


if __name__ == "__main__":
    main()
