"""A small training that saves in one of several ways, and goes on from its newest checkpoint.

python probe_kills.py FOLDER in-place | rename | synced | remove-first | pointer-first | pointer-last
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

UPDATES, SAVE_EVERY, KEPT = 40, 2, 2


class Training:
    def __init__(self, folder: Path, how: str) -> None:
        self.folder, self.how = folder, how
        torch.manual_seed(1)
        self.model = torch.nn.Linear(8, 8)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.done = 0
        self.latest = folder / "latest"
        folder.mkdir(exist_ok=True)
        newest = self.newest()
        if newest is not None:
            saved = torch.load(newest)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.done = saved["done"]

    def newest(self) -> Path | None:
        if self.how.startswith("pointer"):
            name = self.latest.read_text() if self.latest.exists() else ""
            return self.folder / name if name else None
        return max(self.folder.glob("step-*.pt"), default=None)

    def save(self) -> None:
        name = "step-0000.pt" if self.how == "in-place" else f"step-{self.done:04d}.pt"
        path, partial = self.folder / name, self.folder / "partial"
        whole = sorted(self.folder.glob("step-*.pt"))
        if self.how == "remove-first":
            for old in whole:
                old.unlink()
        if self.how == "pointer-first":
            self.point_to(name)
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "done": self.done,
        }
        torch.save(state, path if self.how == "in-place" else partial)
        if partial.exists():
            self.sync(partial)
            partial.replace(path)
            self.sync(self.folder)
        if self.how == "pointer-last":
            self.point_to(name)
        for old in whole[: 1 - KEPT] if self.how != "remove-first" else ():
            old.unlink(missing_ok=True)

    def sync(self, path: Path) -> None:
        if self.how == "synced":
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    def point_to(self, name: str) -> None:
        partial = self.folder / "latest.new"
        partial.write_text(name)
        partial.replace(self.latest)

    def run(self) -> None:
        while self.done < UPDATES:
            self.optimizer.zero_grad()
            self.model(torch.randn(4, 8)).pow(2).sum().backward()
            self.optimizer.step()
            self.done += 1
            if self.done % SAVE_EVERY == 0:
                self.save()


if __name__ == "__main__":
    Training(Path(sys.argv[1]), sys.argv[2]).run()
