"""PyTorch with FSDP2 (`fully_shard`): every rank holds a shard of parameters and optimizer slots; gloo on CPU, NCCL on GPUs.

Each tensor is cut along its first dimension into one part per rank; the last may be smaller or empty. With two ranks gradients equal those of DistributedDataParallel bit for bit; with
more, the order of summation differs. Unlike under DistributedDataParallel, every rank keeps its own running statistics. A
rank needs memory for the whole state while the network is built and while digests are taken (at the end of a run, and in
proofs). Deterministic mode is PyTorch's.
"""

from __future__ import annotations

import gc
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ckptbench.frameworks.contract import Format
from ckptbench.frameworks.pytorch.framework import PyTorch
from ckptbench.frameworks.pytorch.tensors import check_shape


class PyTorchFsdp(PyTorch):
    """One rank. A single rank has a process group too, which FSDP2 needs, and holds all of every tensor."""

    formats: ClassVar[dict[str, Format[PyTorchFsdp]]]  # type: ignore[assignment]  # filled at the end of the file
    is_sharded = True
    replicas: ClassVar[int] = 1
    """How many ranks hold the same shard, if the number of ranks is a multiple of it."""

    def _connect(self) -> None:
        ranks = self._world.world_size
        if ranks == 1:
            # DCP's asynchronous saves need a backend of the CPU as well.
            backend = "cpu:gloo,cuda:nccl" if self._device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        super()._connect()
        holders = math.gcd(self.replicas, ranks)
        self.parts = ranks // holders
        self._replica = self._world.rank // self.parts, holders
        if holders == 1:
            self._mesh = init_device_mesh(self._device.type, (ranks,))
        else:  # the first dimension replicates, the second one shards
            names = ("replicas", "shards")
            self._mesh = init_device_mesh(
                self._device.type, (holders, self.parts), mesh_dim_names=names
            )

    def _wrapped(self) -> nn.Module:
        """The module, whose parameters become DTensors. A layer that shares a parameter with another is left to the root."""
        used = Counter(id(each) for layer in self.module for each in layer.parameters())
        for layer in self.module:
            own = [used[id(each)] for each in layer.parameters()]
            if own and max(own) == 1:
                fully_shard(layer, mesh=self._mesh)
        # A root keeps what it has gathered unless it is told otherwise: the network's parameters would then be no shards
        # after `predict`.
        return fully_shard(self.module, mesh=self._mesh, reshard_after_forward=True)

    def _whole(self, tensor: torch.Tensor) -> NDArray[np.generic]:
        return super()._whole(tensor.full_tensor() if isinstance(tensor, DTensor) else tensor)

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        return local_shard(tensor)

    def _shard(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        if not isinstance(tensor, DTensor):
            return None
        rows = _rows(tensor)
        size = math.prod(tensor.shape[1:])
        return rows.start * size, rows.stop * size

    def close(self) -> None:
        """All that holds the process group is let go first. Otherwise its threads may still be there at the end of Python, which then
        aborts now and then (PyTorch 2.13 on CPU: `terminate called without an active exception`, in 1 of 22 pairs of ranks).
        """
        self.barrier()
        self._handles.clear()
        del self.module, self.optimizer, self._forward, self._mesh, self._places, self._all_buffers
        gc.collect()
        super().close()
        if self._world.world_size == 1:
            dist.destroy_process_group()


def local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """The shard of a DTensor that this rank holds; any other tensor as it is."""
    return tensor.detach().to_local() if isinstance(tensor, DTensor) else tensor


def _rows(tensor: DTensor) -> slice:
    """Of the whole tensor, those that this rank holds."""
    shape, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return slice(offset[0], offset[0] + shape[0])


def _save_torch(framework: PyTorchFsdp, target: Path | BinaryIO) -> None:
    """Gather the state in the memory of rank 0's host, and write it there."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model, optimizer = get_state_dict(framework.module, framework.optimizer, options=options)
    if dist.get_rank() != 0:
        return  # it has got nothing
    for _, (first, *others) in _names(framework.module):  # else a tied tensor would be there twice
        model.update((name, model[first]) for name in others)
    torch.save({"model": model, "optimizer": optimizer}, target)


def _names(module: nn.Module) -> list[tuple[nn.Parameter, list[str]]]:
    """Every parameter with its names: tied ones have several."""
    found: dict[nn.Parameter, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found[parameter].append(name)
    return list(found.items())


def _load_torch(framework: PyTorchFsdp, path: Path) -> None:
    """Of each tensor, only the pages with this rank's shard are read from the file."""
    state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    for name, tensor in framework.module.state_dict().items():
        _put(name, state["model"][name], tensor)
    for parameter, (name, *_) in _names(framework.module):
        for slot, tensor in framework.optimizer.state[parameter].items():
            _put(f"the {slot} of {name}", state["optimizer"]["state"][name][slot], tensor)


@torch.no_grad()
def _put(name: str, whole: torch.Tensor, tensor: Any) -> None:
    check_shape(name, whole, tensor)
    local_shard(tensor).copy_(whole[_rows(tensor)] if isinstance(tensor, DTensor) else whole)


PyTorchFsdp.formats = {"torch_save": Format("model.pt", _save_torch, _load_torch)}
