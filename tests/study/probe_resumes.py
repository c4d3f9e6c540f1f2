"""A small training that goes on from its newest checkpoint, without what `--missing` names.

python probe_resumes.py FOLDER
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

UPDATES, SAVE_EVERY = 8, 3


class Training:
    """Dropout draws from PyTorch's random state; data come from a generator of its own; the learning rate falls at every update."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        torch.manual_seed(1)
        self.model = nn.Sequential(
            nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)
        )
        kinds = {"adam": torch.optim.AdamW, "sgd": torch.optim.SGD}
        self.optimizer = kinds[options.optimizer](self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda done: 0.9**done)
        self.data = torch.Generator().manual_seed(2)
        self.average = [one.detach().clone() for one in self.model.parameters()]
        self.done = 0

    def update(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(16, 8, generator=self.data)).pow(2).sum().backward()
        self.optimizer.step()
        self.scheduler.step()
        for mean, one in zip(self.average, self.model.parameters(), strict=True):
            mean.lerp_(one.detach(), 0.5)
        self.done += 1

    def parts(self) -> dict[str, Any]:
        """Of a checkpoint: each may be missing when it is restored."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "data": self.data.get_state(),
            "average": self.average,
            "random": torch.get_rng_state(),
            "done": self.done,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        setters = {
            "model": self.model.load_state_dict,
            "optimizer": self.optimizer.load_state_dict,
            "scheduler": self.scheduler.load_state_dict,
            "data": self.data.set_state,
            "average": lambda average: setattr(self, "average", average),
            "random": torch.set_rng_state,
            "done": lambda done: setattr(self, "done", done),
        }
        for name, setter in setters.items():
            if name not in self.options.missing:
                setter(saved[name])

    def save(self, folder: Path) -> None:
        partial, path = folder / "partial.pt", folder / f"step-{self.done}.pt"
        if self.options.stuck and self.done > SAVE_EVERY:
            threading.Thread(
                target=torch.save, args=(self.parts(), Stuck(partial)), daemon=True
            ).start()
            time.sleep(0.2)  # so that it has begun before the next update
            return
        torch.save(self.parts(), partial)
        partial.rename(path)


class Stuck:
    """A file that takes no byte."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self.name = str(path)

    def write(self, _: bytes) -> int:
        threading.Event().wait()
        return 0

    def flush(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--missing", nargs="*", default=[])
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--stuck", action="store_true", help="all saves but the first never end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(exist_ok=True, parents=True)
    training = Training(options)
    found = sorted(options.folder.glob("step-*.pt"), key=lambda path: path.stat().st_mtime)
    if found and "checkpoint" not in options.missing:
        training.restore(torch.load(found[-1]))
    while training.done < UPDATES:
        training.update()
        if training.done % SAVE_EVERY == 0:
            training.save(options.folder)


if __name__ == "__main__":
    main()
