"""An Ignite Engine with the handler Checkpoint, resumed as https://docs.pytorch.org/ignite/generated/ignite.handlers.checkpoint.Checkpoint.html shows.

torchrun --nproc-per-node 2 train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.engine.deterministic import DeterministicEngine
from ignite.handlers import Checkpoint, DiskSaver
from ignite.utils import manual_seed
from torch import Tensor, nn
from torch.utils.data import TensorDataset

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 8, 6


def training(_: int, folder: Path, deterministic: bool) -> None:
    manual_seed(1)
    samples = UPDATES_OF_AN_EPOCH * BATCH * idist.get_world_size()
    data = TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,)))
    loader = idist.auto_dataloader(
        data, batch_size=BATCH * idist.get_world_size(), shuffle=True, drop_last=True
    )
    model = idist.auto_model(
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    )
    optimizer = idist.auto_optim(torch.optim.AdamW(model.parameters(), lr=1e-3))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * UPDATES_OF_AN_EPOCH)

    def update(_: Engine, batch: list[Tensor]) -> float:
        model.train()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.item()

    trainer = DeterministicEngine(update) if deterministic else Engine(update)

    @trainer.on(Events.EPOCH_STARTED)
    def order() -> None:
        if idist.get_world_size() > 1:
            loader.sampler.set_epoch(trainer.state.epoch - 1)

    parts = {"trainer": trainer, "model": model, "optimizer": optimizer, "scheduler": scheduler}
    saves = Checkpoint(parts, DiskSaver(str(folder), require_empty=False), n_saved=2)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=SAVE_EVERY), saves)
    saved = sorted(folder.glob("checkpoint_*.pt"), key=lambda path: int(path.stem.split("_")[1]))
    if saved:
        Checkpoint.load_objects(parts, torch.load(saved[-1], weights_only=False))
    trainer.run(loader, max_epochs=EPOCHS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--deterministic", action="store_true")
    options = parser.parse_args()
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, options.folder, options.deterministic)


if __name__ == "__main__":
    main()
