"""A small training that goes on from its newest checkpoint, without what `--missing` names.

python probe_resumes.py FOLDER
"""

from __future__ import annotations

import argparse
import pickle
import threading
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.torch import save_file
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
        own = {"fused": True} if options.fused else {}
        self.optimizer = kinds[options.optimizer](self.model.parameters(), lr=0.1, **own)
        # Its gradient is always 3: at 2^127 it overflows, so that the first update is left out.
        self.steep = nn.Parameter(torch.zeros(2))
        if options.scaler:
            self.optimizer.add_param_group({"params": [self.steep]})
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, enabled=options.scaler)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda done: 0.9**done)
        self.data = torch.Generator().manual_seed(2)
        self.average = [one.detach().clone() for one in self.model.parameters()]
        if options.average:  # as arrays, so that only the file shows them
            self.average = [one.numpy() for one in self.average]
        self.batches = iter(())
        self.done = 0
        self.end = UPDATES
        self.one_later = threading.Event()
        self.saving: threading.Thread | None = None

    def update(self) -> None:
        self.optimizer.zero_grad()
        loss = self.model(self.batch()).pow(2).sum()
        if self.options.scaler:
            loss = loss / 1000 + 3 * self.steep.sum()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        with torch.no_grad():
            for one in self.model.parameters() if self.options.clamp else ():
                one.clamp_(-0.1, 0.1)
        for place, one in enumerate(self.model.parameters()):
            if self.options.average:
                self.average[place] = (self.average[place] + one.detach().numpy()) / 2
            else:
                self.average[place].lerp_(one.detach(), 0.5)
        self.done += 1
        if self.saving is not None:
            self.one_later.set()
            self.saving.join()

    def batch(self) -> torch.Tensor:
        if not self.options.loader:
            return torch.randn(16, 8, generator=self.data)
        found = next(self.batches, None)
        if found is None:  # its order is drawn from PyTorch's random state
            data = torch.randn(80, 8, generator=torch.Generator().manual_seed(2))
            self.batches = iter(torch.utils.data.DataLoader(data, batch_size=16, shuffle=True))
            found = next(self.batches)
        return found

    def parts(self) -> dict[str, Any]:
        """Of a checkpoint: each may be missing when it is restored."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "data": self.data.get_state(),
            **({} if self.options.average else {"average": self.average}),
            "scaler": self.scaler.state_dict(),
            "steep": self.steep.detach(),
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
            "scaler": self.scaler.load_state_dict,
            "steep": self.steep.data.copy_,
            "random": torch.set_rng_state,
            "done": lambda done: setattr(self, "done", done),
        }
        for name, setter in setters.items():
            if name not in self.options.missing and name in saved:
                setter(saved[name])
        if "epochs" in self.options.missing:
            self.end += self.done

    def save(self, folder: Path) -> None:
        partial, path = folder / "partial.pt", folder / f"step-{self.done}.pt"
        if self.options.stuck and self.done > SAVE_EVERY:
            threading.Thread(
                target=torch.save, args=(self.parts(), Stuck(partial)), daemon=True
            ).start()
            time.sleep(0.2)  # so that it has begun before the next update
            return
        if self.options.behind:
            self.one_later.clear()
            self.saving = threading.Thread(
                target=self.save_later, args=(deepcopy(self.parts()), path)
            )
            self.saving.start()
            return
        if self.options.average:
            self.save_average(folder)
        torch.save(self.parts(), partial)
        partial.rename(path)

    def save_later(self, parts: dict[str, Any], path: Path) -> None:
        """The state of this update, when the next one has been made."""
        self.one_later.wait(60)
        torch.save(parts, path)

    def save_average(self, folder: Path) -> None:
        """By each engine, the last in a thread. It is never restored."""
        numpy.savez(folder / "average.npz", *self.average)
        with (folder / "average.pkl").open("wb") as file:
            pickle.dump(self.average, file)
        named = {str(n): torch.from_numpy(one) for n, one in enumerate(self.average)}
        save_file(named, folder / "average.safetensors")
        thread = threading.Thread(target=torch.save, args=(named, folder / "average.pt"))
        thread.start()
        thread.join()


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
    parser.add_argument("--average", action="store_true", help="in files of its own")
    parser.add_argument("--scaler", action="store_true")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--clamp", action="store_true", help="weights after each update")
    parser.add_argument("--loader", action="store_true", help="its place is never restored")
    parser.add_argument("--behind", action="store_true", help="saves begin an update later")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(exist_ok=True, parents=True)
    training = Training(options)
    found = sorted(options.folder.glob("step-*.pt"), key=lambda path: path.stat().st_mtime)
    if found and "checkpoint" not in options.missing:
        training.restore(torch.load(found[-1]))
    while training.done < training.end:
        training.update()
        if training.done % SAVE_EVERY == 0:
            training.save(options.folder)


if __name__ == "__main__":
    main()
