"""A loop as in nanoGPT that saves everything: the control of the table. `--without PART` does one part wrong.

python train.py --folder checkpoints [--without random|optimizer|sync|signal|pointer] [--pause SECONDS]
"""

import argparse
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

UPDATES, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY, SAMPLES = 36, 12, 8, 6, 96


def sync(path: Path) -> None:
    os.fsync(descriptor := os.open(path, os.O_RDONLY))
    os.close(descriptor)


def put(path: Path, write: Callable[[Path], object], synced: bool) -> None:
    draft = path.with_name(f"{path.name}.draft")
    write(draft)
    if synced:
        sync(draft)
    draft.rename(path)
    if synced:
        sync(path.parent)


def save(state: dict[str, object], folder: Path, wrong: str | None) -> None:
    file = folder / f"step-{state['step']}.pt"
    data = (file, lambda draft: torch.save(state, draft))
    pointer = (folder / "latest", lambda draft: draft.write_text(file.name))
    for path, write in (pointer, data) if wrong == "pointer" else (data, pointer):
        put(path, write, wrong != "sync")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--without")
    parser.add_argument("--pause", type=float, default=0.0)
    folder, wrong, pause_s = vars(parser.parse_args()).values()
    folder.mkdir(parents=True, exist_ok=True)
    stop: list[int] = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN if wrong == "signal" else lambda *_: stop.append(1))  # fmt: skip
    torch.manual_seed(1)
    inputs, targets = torch.randn(SAMPLES, 64), torch.randint(10, (SAMPLES,))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
    parts = {"model": model, "scheduler": scheduler} | ({} if wrong == "optimizer" else {"optimizer": optimizer})  # fmt: skip
    done = 0
    if (folder / "latest").exists():
        saved = torch.load(folder / (folder / "latest").read_text())
        done = saved["step"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(torch.get_rng_state() if wrong == "random" else saved["random"])
    for step in range(done + 1, UPDATES + 1):
        epoch, number = divmod(step - 1, UPDATES_OF_AN_EPOCH)
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)).split(BATCH)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[order[number]]), targets[order[number]]).backward()  # fmt: skip
        optimizer.step()
        scheduler.step()
        time.sleep(pause_s)
        if step % SAVE_EVERY == 0 or stop:
            state = {name: part.state_dict() for name, part in parts.items()}
            save({**state, "step": step, "random": torch.get_rng_state()}, folder, wrong)
            if stop:
                return


if __name__ == "__main__":
    main()
