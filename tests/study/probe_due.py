"""Trains until a number of steps, and saves when `ckptbench_probe.Interval` says so, or every so many steps.

python probe_due.py torch_save MTBF STEPS [EVERY WIDTH]; torchrun probe_due.py dcp_async MTBF STEPS [EVERY WIDTH]. It resumes from `checkpoints/`,
and each rank prints a line: when its saves began and were finished, what the interval has learned, and how long a step takes.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probe" / "src"))
from ckptbench_probe import Interval

FOLDER = Path("checkpoints")
AFTER = 8
"""Steps from the start of a save in which it costs something."""


class Saver:
    """By `torch.save`, in the foreground."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, when: Interval) -> None:
        self.parts: dict[str, Any] = {"model": module, "optimizer": optimizer, "when": when}
        self.step = 0
        self.saves: list[list[float]] = []
        """Step, start, and when it was finished."""

    def save(self, step: int) -> None:
        started_s = time.monotonic()
        path = FOLDER / f"step-{step}"
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({**state, "step": step}, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
        self.saves.append([step, started_s, time.monotonic()])

    def load(self, path: Path) -> None:
        state = torch.load(path)
        self.step = state["step"]
        for name, part in self.parts.items():
            part.load_state_dict(state[name])

    def end(self) -> None:
        """Nothing goes on."""


class BackgroundSaver(Saver):
    """By `dcp.async_save`, of all ranks."""

    pending: Future[Any] | None = None

    def save(self, step: int) -> None:
        self.end()
        self.saves.append([step, time.monotonic(), 0.0])
        last = self.saves[-1]
        state = {**{name: part.state_dict() for name, part in self.parts.items()}, "step": step}
        self.pending = self.parts["when"].saving(
            dcp.async_save(state, checkpoint_id=FOLDER / f"step-{step}", process_group=SAVING)
        )
        self.pending.add_done_callback(lambda _: last.__setitem__(2, time.monotonic()))

    def load(self, path: Path) -> None:
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        state = {**parts, "step": 0}
        dcp.load(state, checkpoint_id=path)
        self.step = state["step"]
        for name, part in self.parts.items():
            part.load_state_dict(state[name])

    def end(self) -> None:
        if self.pending is not None:
            self.pending.result()


def main() -> None:
    way, mtbf, *numbers = sys.argv[1:]
    steps, every, width = (
        [*map(int, numbers), 0, 64][:3] if len(numbers) == 1 else map(int, numbers)
    )
    torch.set_num_threads(1)
    torch.manual_seed(1)
    module: nn.Module = nn.Sequential(*(nn.Linear(width, width) for _ in range(8)))
    optimizer = torch.optim.AdamW(module.parameters())
    parallel = nn.parallel.DistributedDataParallel(module) if dist.is_initialized() else module
    when = Interval(mtbf=mtbf)
    saver = (BackgroundSaver if way == "dcp_async" else Saver)(module, optimizer, when)
    FOLDER.mkdir(exist_ok=True)
    data = torch.randn(64, width)
    parallel(data).sum().backward()
    optimizer.step()  # makes its state, into which a checkpoint is loaded
    whole = [path for path in FOLDER.glob("step-*") if path.suffix != ".part"]
    if whole:
        saver.load(max(whole, key=lambda path: int(path.name[5:])))
    resumed, known, begun_s = saver.step, when.interval, time.monotonic()
    moments_s = []
    for step in range(saver.step + 1, steps + 1):
        optimizer.zero_grad()
        parallel(data).square().mean().backward()
        optimizer.step()
        moments_s.append(time.monotonic())
        if step % every == 0 if every else when.due(step):
            saver.save(step)
    ended_s = time.monotonic()
    saver.end()
    saved_at = [int(step) - resumed - 1 for step, _, _ in saver.saves]
    after_s = [moments_s[at + AFTER] - moments_s[at] for at in saved_at if at + AFTER < len(moments_s)]  # fmt: skip
    quiet = len(moments_s) - 1 - AFTER * len(after_s)
    step_s = (moments_s[-1] - moments_s[0] - sum(after_s)) / max(quiet, 1)
    told = {"step_s": step_s, "costs_s": [one - AFTER * step_s for one in after_s], "resumed": resumed, "known": known, "begun_s": begun_s, "ended_s": ended_s, "saves": saver.saves, "learned": when.state_dict()}  # fmt: skip
    print(json.dumps(told) + "\n", end="", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "dcp_async":
        dist.init_process_group("gloo")
        SAVING = dist.new_group(backend="gloo")
    main()
    if dist.is_initialized():
        dist.destroy_process_group()
