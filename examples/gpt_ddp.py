"""A GPT under DDP that saves with torch.save and resumes from the newest checkpoint.

torchrun --nproc-per-node 2 examples/gpt_ddp.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from digest import digest
from gpt import Gpt, batch, loss_of
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=15)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = DistributedDataParallel(Gpt())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = torch.Generator().manual_seed(100 + rank)
    options.folder.mkdir(parents=True, exist_ok=True)
    done = resume(options.folder, model, optimizer, data)
    for step in range(done + 1, options.steps + 1):
        loss = loss_of(model, *batch(data))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.save_every == 0:
            generators = gathered(data.get_state())
            if rank == 0:
                save(options.folder, step, model, optimizer, generators)
    if rank == 0:
        print(f"weights {digest(p.detach() for p in model.parameters())}")
    dist.barrier()  # if one rank exits while another still communicates with it, the other aborts
    dist.destroy_process_group()


def gathered(state: torch.Tensor) -> list[torch.Tensor]:
    """The tensors of all ranks."""
    found: list[torch.Tensor] = [torch.empty_like(state) for _ in range(dist.get_world_size())]
    dist.all_gather(found, state)
    return found


def save(
    folder: Path,
    step: int,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    generators: list[torch.Tensor],
) -> None:
    started = time.perf_counter()
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generators": generators,
    }
    torch.save(state, folder / "partial.pt")
    print(f"step {step}: torch.save took {time.perf_counter() - started:.6f} s", flush=True)
    os.replace(folder / "partial.pt", folder / f"step-{step}.pt")


def resume(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, data: torch.Generator
) -> int:
    """Steps completed so far."""
    steps = [int(path.stem.partition("-")[2]) for path in folder.glob("step-*.pt")]
    if not steps:
        return 0
    state = torch.load(folder / f"step-{max(steps)}.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    data.set_state(state["generators"][dist.get_rank()])
    return int(state["step"])


if __name__ == "__main__":
    main()
