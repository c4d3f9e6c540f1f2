"""A small training whose weights and moments are spread over the ranks, and that goes on with any number of them.

python probe_reshards.py FOLDER right | wrong, under torchrun. `wrong`: parts of the moments are joined in the wrong order.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

UPDATES, SAVE_EVERY, SHARDED = 30, 4, Shard(1)


def main(folder: Path, how: str) -> None:
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(1)
    weight = torch.nn.Parameter(distribute_tensor(torch.randn(3, 8), mesh, [SHARDED]))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    files = sorted(folder.glob("part-*.pt"))
    done = 0
    if files:
        saved = [torch.load(file) for file in files]
        with torch.no_grad():
            weight.copy_(joined([one["weight"] for one in saved], mesh))
        moments = [one["moment"] for one in saved[:: -1 if how == "wrong" else 1]]
        optimizer.state[weight]["momentum_buffer"] = joined(moments, mesh)
        done = saved[0]["done"]
    while done < UPDATES:
        weight.grad = weight.detach() * 0.5
        optimizer.step()
        done += 1
        if done % SAVE_EVERY == 0:
            moment = optimizer.state[weight]["momentum_buffer"]
            state = {"weight": local(weight), "moment": local(moment), "done": done}
            folder.mkdir(exist_ok=True)
            torch.save(state, folder / f"part-{rank}.pt")
            distributed.barrier()
    distributed.destroy_process_group()


def joined(parts: list[torch.Tensor], mesh: DeviceMesh) -> DTensor:
    return distribute_tensor(torch.cat(parts, 1), mesh, [SHARDED])


def local(tensor: Any) -> torch.Tensor:
    assert isinstance(tensor, DTensor)
    return tensor.detach().to_local()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
