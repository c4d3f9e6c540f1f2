"""A small training that goes on from its newest checkpoint, and takes SIGTERM in the way that it is told.

python probe_stops.py FOLDER HOW, alone or under torchrun
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

UPDATES, SAVE_EVERY = 100_000, 4
STEP_S = 0.02
PIECES = 200
"""In which a slow save writes."""


class Training:
    def __init__(self, folder: Path, how: str) -> None:
        self.folder, self.how = folder, how
        self.rank = int(os.environ.get("RANK", "0"))
        self.ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if self.ranks > 1:
            distributed.init_process_group("gloo")
        torch.manual_seed(1)
        self.model = torch.nn.Linear(8, 8)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.done = 0
        self.stop = False
        folder.mkdir(exist_ok=True)
        newest = max(folder.glob("step-*.pt"), key=_number, default=None)
        if newest is not None:
            self.restore(newest)

    def restore(self, path: Path) -> None:
        saved = torch.load(path)
        self.model.load_state_dict(saved["model"])
        if self.how != "partly":
            self.optimizer.load_state_dict(saved["optimizer"])
        self.done = saved["done"]

    def update(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(4, 8)).pow(2).sum().backward()
        if self.ranks > 1:
            for one in self.model.parameters():
                distributed.all_reduce(one.grad)
        self.optimizer.step()
        self.done += 1

    def save(self) -> None:
        if self.rank:
            return
        partial, path = self.folder / "partial.pt", self.folder / f"step-{self.done}.pt"
        saved = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "done": self.done,
        }
        if not self.stop or self.how not in ("slow", "in-place", "thread"):
            torch.save(saved, partial)
        else:
            torch.save(saved, Slow(path if self.how == "in-place" else partial))
        if partial.exists():
            partial.replace(path)

    def run(self) -> None:
        while self.done < UPDATES:
            time.sleep(STEP_S)
            self.update()
            self.agree()
            if self.stop and self.how == "thread":
                threading.Thread(target=self.save, daemon=True).start()
                time.sleep(0.5)
                os._exit(0)  # with the thread
            if self.done % SAVE_EVERY == 0 or (self.stop and self.how != "exits"):
                self.save()
            if self.stop and self.how != "trains-on":
                break
            self.stop = False

    def agree(self) -> None:
        """The ranks get the signal at different updates."""
        if self.ranks > 1 and self.how != "one-rank":
            asked = torch.tensor(int(self.stop))
            distributed.all_reduce(asked, distributed.ReduceOp.MAX)
            self.stop = bool(asked)

    def asked(self, number: int, _: Any) -> None:
        """The handler."""
        self.stop = self.how != "ignores"
        if self.how == "one-rank" and self.rank == 0:
            self.save()
            distributed.barrier()  # the others never come
            sys.exit()
        if self.how == "one-rank":
            self.stop = False


class Slow:
    """A file that takes a second for each few bytes."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._file = path.open("wb", buffering=0)

    def write(self, content: Any) -> int:
        whole = bytes(content)
        size = max(1, len(whole) // PIECES)
        for start in range(0, len(whole), size):
            self._file.write(whole[start : start + size])
            time.sleep(0.1)
        return len(whole)

    def flush(self) -> None:
        self._file.flush()


def _number(path: Path) -> int:
    return int(re.findall(r"\d+", path.name)[0])


def main() -> None:
    training = Training(Path(sys.argv[1]), sys.argv[2])
    if training.how != "dies":
        signal.signal(signal.SIGTERM, training.asked)
    training.run()


if __name__ == "__main__":
    main()
