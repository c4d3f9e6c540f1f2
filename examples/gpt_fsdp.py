"""A GPT under FSDP2 that saves with dcp.async_save and resumes from the newest checkpoint.

torchrun --nproc-per-node 2 examples/gpt_fsdp.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from digest import digest
from gpt import Gpt, batch, loss_of
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=15)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    # Collectives of a save must not interleave with those of training.
    saving = dist.new_group(backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Gpt()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = torch.Generator().manual_seed(100 + rank)
    done = resume(options.folder, model, optimizer, data)
    pending: Future[Any] | None = None
    for step in range(done + 1, options.steps + 1):
        loss = loss_of(model, *batch(data))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.save_every == 0:
            if pending is not None:
                pending.result()
            state = state_of(model, optimizer, data, rank)
            started = time.perf_counter()
            pending = dcp.async_save(
                state, checkpoint_id=options.folder / f"step-{step}", process_group=saving
            )
            if rank == 0:
                print(
                    f"step {step}: dcp.async_save blocked {time.perf_counter() - started:.6f} s",
                    flush=True,
                )
    if pending is not None:
        pending.result()
    weights = digest(p.detach().full_tensor() for p in model.parameters())
    if rank == 0:
        print(f"weights {weights}")
    dist.barrier()  # if one rank exits while another still communicates with it, the other aborts
    dist.destroy_process_group()


def state_of(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, data: torch.Generator, rank: int
) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, f"generator-{rank}": data.get_state()}


def resume(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, data: torch.Generator
) -> int:
    """Steps completed so far. A folder without `.metadata` is an interrupted save."""
    steps = [int(path.parent.name.partition("-")[2]) for path in folder.glob("step-*/.metadata")]
    if not steps:
        return 0
    state = state_of(model, optimizer, data, dist.get_rank())
    dcp.load(state, checkpoint_id=folder / f"step-{max(steps)}")
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    data.set_state(state[f"generator-{dist.get_rank()}"])
    return max(steps)


if __name__ == "__main__":
    main()
