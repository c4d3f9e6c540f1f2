"""A small training of several ranks whose first one saves, and that takes an error of a save in the way that it is told.

python probe_fails.py FOLDER waits | agrees, under torchrun. `waits`: the other ranks wait for a save that the first one has given up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import distributed

UPDATES, SAVE_EVERY = 60, 2


def main(folder: Path, how: str) -> None:
    distributed.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    done = 0
    newest = max(folder.glob("step-*.pt"), default=None)
    if newest is not None:
        saved = torch.load(newest)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]
    while done < UPDATES:
        optimizer.zero_grad()
        model(torch.randn(4, 256)).pow(2).sum().backward()
        optimizer.step()
        done += 1
        if done % SAVE_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done}
            saves(folder / f"step-{done:04d}.pt", state, how)
    distributed.destroy_process_group()


def saves(path: Path, state: dict[str, object], how: str) -> None:
    if distributed.get_rank() == 0:
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name("partial")
        try:
            torch.save(state, partial)
            partial.replace(path)
        except (OSError, RuntimeError) as error:
            print(f"{path.name} was not saved: {type(error).__name__}: {error}")
            if how == "waits":
                return
    distributed.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
