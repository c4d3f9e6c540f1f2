"""One rank of PyTorch: its steps, its state and its formats."""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from ckptbench.common.connections import connections, shut_down
from ckptbench.common.errors import CheckpointError
from ckptbench.frameworks.contract import (
    SECOND_MOMENT,
    AdamW,
    Arrays,
    Format,
    Framework,
    Optimizer,
    Sgd,
    TensorHandle,
    TrainSpec,
    left_out,
    parts_of,
)
from ckptbench.frameworks.determinism import settle_libraries
from ckptbench.frameworks.pytorch.network import (
    Places,
    buffer_places,
    module_of,
    named_places,
    tensors_at,
)
from ckptbench.frameworks.pytorch.tensors import (
    Memory,
    array_of,
    by_memory,
    check_shape,
    from_numpy,
    handle_of,
    to_numpy,
)
from ckptbench.frameworks.random_state import load_random_state, random_state, seed_all
from ckptbench.inputs.datasets.dataset import Inputs
from ckptbench.matrix.networks import layers as arch
from ckptbench.run.control.ranks import RankContext

# Each is needed by one format alone. An import within a save would be timed.
with suppress(ModuleNotFoundError):
    import h5py
with suppress(ModuleNotFoundError):
    import safetensors.torch

log = logging.getLogger(__name__)

StateDict = dict[str, torch.Tensor]
SLOTS: dict[type[Optimizer], dict[str, str]] = {
    Sgd: {"momentum_buffer": ""},
    AdamW: {"exp_avg": "", "exp_avg_sq": SECOND_MOMENT, "step": ".step"},
}
"""PyTorch's own names of an optimizer's slots, each with what stands behind the parameter's name in that of the tensor."""
COUNTER = "step"
"""The slot that has one number."""


class PyTorch(Framework):
    """One rank. A run with a single rank has neither a process group nor DistributedDataParallel.

    The running variance follows n / (n - 1) of the batch's variance.
    """

    formats: ClassVar[dict[str, Format[PyTorch]]]  # filled at the end of the file
    module: nn.Module
    optimizer: torch.optim.Optimizer
    _places: Places
    _all_buffers: Places
    _forward: nn.Module  # the module, wrapped if there are several ranks
    parts = 1
    """In how many parts model and optimizer lie, one on each rank. Rank r holds part r % parts."""

    def __init__(self, world: RankContext) -> None:
        self._world = world
        self._device = torch.device(world.accelerator)
        # Copies to the host go beside the stream in which the network computes.
        self._copying = torch.cuda.Stream() if self._device.type == "cuda" else None
        self._handles: dict[str, tuple[tuple[Any, ...], TensorHandle]] = {}
        self._replica = (0, 1)
        """See `TensorHandle.replica`."""

    @classmethod
    def join(cls, world: RankContext, *, seed: int, deterministic: bool) -> Self:
        torch.set_num_threads(world.threads)
        seed_all(seed + world.rank)
        torch.manual_seed(seed + world.rank)
        if deterministic:
            _be_deterministic()
        framework = cls(world)
        framework._meet()
        return framework

    def _meet(self) -> None:
        """Connect, and note which sockets that has made. Later groups have others, which nothing waits for after a loss."""
        before = connections()
        self._connect()
        self._connections = connections() - before

    def _connect(self) -> None:
        if self._world.world_size > 1:
            dist.init_process_group(
                "nccl" if self._world.accelerator == "cuda" else "gloo",
                init_method=f"tcp://{self._world.addresses[0]}",
                rank=self._world.rank,
                world_size=self._world.world_size,
                timeout=datetime.timedelta(minutes=10),
            )

    def build(self, spec: TrainSpec) -> None:
        self._spec = replace(spec, weights={})
        self._autocast = functools.partial(
            torch.autocast, self._device.type, torch.bfloat16, enabled=spec.precision == "bf16"
        )
        self._loss = nn.CrossEntropyLoss()
        self._make(spec.weights)

    def _make(self, weights: Arrays) -> None:
        """Make the module with these weights, or random ones for parameters without, and the optimizer, for all ranks that there are."""
        self._handles.clear()
        self.module = module_of(self._spec.network).to(self._device)
        self._places = named_places(self.module, "_parameters")
        with torch.no_grad():
            for name, parameter in self._parameters():
                if name in weights:
                    parameter.copy_(torch.from_numpy(weights[name]))
        self._forward = self._wrapped()
        self._all_buffers = buffer_places(self.module)
        self.optimizer = self._optimizer(self._spec.optimizer)
        self._slots = SLOTS[type(self._spec.optimizer)]
        # Zeros give the same first update as no slots, and a load needs the slots to exist.
        for parameter in self.module.parameters():
            self.optimizer.state[parameter] = {
                slot: torch.zeros_like(parameter)
                if slot != COUNTER
                else torch.zeros((), device=self._device)
                for slot in self._slots
            }

    def _optimizer(self, settings: Optimizer) -> torch.optim.Optimizer:
        if isinstance(settings, Sgd):
            return torch.optim.SGD(
                self.module.parameters(),
                lr=settings.learning_rate,
                momentum=settings.momentum,
                weight_decay=settings.weight_decay,
            )
        named = list(self._parameters())
        return torch.optim.AdamW(
            [
                {
                    "params": [each for name, each in named if arch.is_decayed(name) == decayed],
                    "weight_decay": settings.weight_decay if decayed else 0.0,
                }
                for decayed in (True, False)
            ],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            # One kernel for all parameters. On a GPU the counters lie there too, so that captures can copy them as all else.
            fused=True,
        )

    def _wrapped(self) -> nn.Module:
        """The module in DistributedDataParallel if there are several ranks. In deterministic mode it must not rebuild its buckets.

        By default DistributedDataParallel rebuilds the buckets of gradients after the first step, in the order in which
        the gradients came. With three ranks or more, other buckets mean another order of sums, so the first step after
        a restart would differ from the same step of the uninterrupted run. It does not rebuild buckets while it
        searches for unused parameters (`Reducer::should_rebuild_buckets`).
        """
        if self._world.world_size == 1:
            return self.module
        return nn.parallel.DistributedDataParallel(
            self.module, find_unused_parameters=torch.are_deterministic_algorithms_enabled()
        )

    def step(self, inputs: Inputs, labels: NDArray[np.int64]) -> float:
        self._forward.train()
        self.optimizer.zero_grad()
        parts = parts_of(len(labels), self._spec.accumulation)
        losses = [
            self._backward(inputs[part], labels[part], len(labels), is_last=part is parts[-1])
            for part in parts
        ]
        if self.average is not None:
            self.average([self._gradient(parameter) for parameter in self.module.parameters()])
        if self.before_update is not None:
            self.before_update()
        self.optimizer.step()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return float(sum(loss.item() for loss in losses))

    def _backward(
        self, inputs: Inputs, labels: NDArray[np.int64], samples: int, *, is_last: bool
    ) -> torch.Tensor:
        """Add the gradients of a part of a batch of so many samples. Returns its share of the loss.

        DistributedDataParallel averages the sum over ranks in the last part's backward pass.
        """
        waits = isinstance(self._forward, nn.parallel.DistributedDataParallel) and not is_last
        share = len(labels) / samples
        with self._forward.no_sync() if waits else nullcontext():
            with self._autocast():
                logits = self._forward(self._inputs(inputs))
                loss = share * self._loss(logits.flatten(0, -2), self._labels(labels).flatten())
            loss.backward()
        return loss.detach()

    def _gradient(self, parameter: nn.Parameter) -> NDArray[np.float32]:
        """The memory of the parameter's gradient. All parameters of our networks take part in every step."""
        assert parameter.grad is not None
        return self._own(parameter.grad).numpy()

    @torch.no_grad()
    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        self.module.eval()
        with self._autocast():
            return self.module(self._inputs(inputs)).float().cpu().numpy()

    def _inputs(self, inputs: Inputs) -> torch.Tensor:
        """Images with the channels first, or tokens."""
        is_image = inputs.ndim == 4
        ordered = np.ascontiguousarray(inputs.transpose(0, 3, 1, 2)) if is_image else inputs
        return torch.from_numpy(ordered).to(self._device)

    def _labels(self, labels: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(labels).to(self._device)

    def barrier(self) -> None:
        if self._world.world_size > 1:
            dist.barrier()

    def abort(self) -> None:
        """Nothing to do: gloo and NCCL notice the dead peer, and the launcher ends ranks that still wait."""

    def disconnect(self) -> None:
        """Leave the others after a loss: collectives in which they wait for this rank end with an error. `reconnect` follows."""
        shut_down(self._connections)
        dist.distributed_c10d._abort_process_group()

    def reconnect(self, world: RankContext) -> None:
        """Meet all ranks again, and make network and optimizer anew. All of the state is then to be loaded."""
        self._world = world
        self._meet()
        self._make({})

    def _parameters(self) -> list[tuple[str, torch.Tensor]]:
        return tensors_at(self._places)

    def _buffers(self) -> list[tuple[str, torch.Tensor]]:
        return tensors_at(named_places(self.module, "_buffers"))

    def slots_of(self, named: Mapping[str, torch.Tensor]) -> StateDict:
        """The optimizer's slots of these parameters, each under `optimizer/`."""
        return {
            f"optimizer/{name}{suffix}": self.optimizer.state[parameter][slot]
            for slot, suffix in self._slots.items()
            for name, parameter in named.items()
        }

    def _check_optimizer(self, parameters: Iterable[torch.Tensor]) -> None:
        """Raise CheckpointError if the optimizer has other parameters than these, or other slots than it was built with."""
        known, state = set(map(id, parameters)), self.optimizer.state
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in known:
                    shape = tuple(parameter.shape)
                    raise left_out(
                        f"the optimizer has a parameter of shape {shape} that the network has not"
                    )
        if set(map(id, state)) != known:
            raise left_out(
                f"the optimizer has slots of {len(state)} parameters, the network has {len(known)}"
            )
        for slots in state.values():
            if slots.keys() != self._slots.keys():
                raise left_out(f"the optimizer has the slots {', '.join(sorted(slots))}")

    def state_dict(self) -> Arrays:
        model = {f"model/{name}": self._whole(tensor) for name, tensor in self._parameters()}
        buffers = {f"model/{name}": self._whole(tensor) for name, tensor in self._buffers()}
        slots = self.slots_of(dict(self._parameters()))
        return {**model, **buffers, **{name: self._whole(slot) for name, slot in slots.items()}}

    def _whole(self, tensor: torch.Tensor) -> NDArray[np.generic]:
        """A copy of all values on the host."""
        return array_of(tensor)

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        """The values that this rank holds."""
        return tensor

    def _shard(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """See `TensorHandle.shard`."""
        return None

    def handles(self) -> list[TensorHandle]:
        parameters = dict(self._parameters())
        self._check_optimizer(parameters.values())
        named = {
            **{f"model/{name}": parameter for name, parameter in parameters.items()},
            **self.slots_of(parameters),
        }
        tied = by_memory(named, self._own)
        return [self._handle(named[names[0]], memory, names) for memory, names in tied.items()]

    def _handle(self, tensor: torch.Tensor, memory: Memory, names: list[str]) -> TensorHandle:
        """Reuse the TensorHandle of the last call if its memory is the same, because saves make training wait."""
        known = self._handles.get(names[0])
        if known is None or known[0] != (memory, names):
            # What is kept holds its memory, so no other tensor can come to lie there.
            made = handle_of(names, self._own(tensor), self._copying)
            shape, shard = tuple(tensor.shape), self._shard(tensor)
            whole = replace(made, shape=shape, shard=shard, replica=self._replica)
            found = (memory, names), whole
            known = self._handles[names[0]] = found
        return known[1]

    def keep_memory(self, memory: NDArray[np.uint8]) -> None:
        if self._device.type != "cuda":
            return
        error = int(torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, 0))
        if error:
            raise CheckpointError(
                f"{memory.nbytes / 1e6:.0f} MB of host memory cannot be page-locked (CUDA error {error}): raise the limit "
                "of locked memory (ulimit -l), or use the strategy native"
            )

    def release_memory(self, memory: NDArray[np.uint8]) -> None:
        if self._device.type != "cuda":
            return
        error = int(torch.cuda.cudart().cudaHostUnregister(memory.ctypes.data))
        if error:
            log.warning(
                "%d bytes of host memory stay page-locked until this process ends (CUDA error %d)",
                memory.nbytes,
                error,
            )

    def begin_copies(self) -> None:
        if self._copying is not None:
            self._copying.wait_stream(torch.cuda.current_stream(self._device))

    def hold_updates(self) -> None:
        if self._copying is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._copying)

    def await_copies(self) -> None:
        if self._copying is not None:
            # The thread that waits sleeps: another kind of event would take a processor from training.
            copied = torch.cuda.Event(blocking=True)
            copied.record(self._copying)
            copied.synchronize()

    @property
    def native_objects(self) -> dict[str, Any]:
        """`module`: the network, without the wrapper of DistributedDataParallel; `optimizer`: that of torch.optim."""
        return {"module": self.module, "optimizer": self.optimizer}

    def local_state(self) -> Arrays:
        """Running statistics are part of it: ranks differ in them until DistributedDataParallel sends rank 0's."""
        state = random_state()
        state |= {
            f"buffer/{name}": array_of(buffer) for name, buffer in tensors_at(self._all_buffers)
        }
        state["random/torch"] = torch.get_rng_state().numpy()
        if self._device.type == "cuda":
            state["random/cuda"] = torch.cuda.get_rng_state(self._device).numpy()
        return state

    def load_local_state(self, state: Arrays) -> None:
        load_random_state(state)
        torch.set_rng_state(torch.from_numpy(state["random/torch"]))
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(torch.from_numpy(state["random/cuda"]), self._device)
        for name, buffer in tensors_at(self._all_buffers):
            buffer.copy_(from_numpy(state[f"buffer/{name}"], buffer.dtype))

    def device(self) -> str:
        return torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"

    def gpu_peak_bytes(self) -> int | None:
        is_gpu = self._device.type == "cuda"
        return int(torch.cuda.max_memory_allocated(self._device)) if is_gpu else None

    def close(self) -> None:
        if self._world.world_size > 1:
            dist.barrier()
            dist.destroy_process_group()

    def flat_state(self) -> StateDict:
        """Model and optimizer as one flat dictionary, for formats that store tensors only. Tied ones have their first name."""
        named = dict(self.module.named_parameters())
        self._check_optimizer(named.values())
        model = {f"model/{name}": tensor for name, tensor in self.module.state_dict().items()}
        state = {**model, **self.slots_of(named)}
        return {names[0]: state[names[0]] for names in by_memory(state).values()}

    def load_slots(self, state: dict[str, Any]) -> None:
        """Raises KeyError or ValueError where `state`, which the optimizer gave, lacks a slot or has one of another shape."""
        self.optimizer.load_state_dict(state)  # it checks neither
        for name, parameter in self.module.named_parameters():
            for slot in self._slots:
                wanted = parameter if slot != COUNTER else parameter.new_empty(())
                found = self.optimizer.state[parameter][slot]
                check_shape(f"the slot {slot} of {name}", found, wanted)

    def load_flat_state(self, state: StateDict) -> None:
        with torch.no_grad():
            for name, tensor in self.flat_state().items():
                check_shape(name, state[name], tensor)
                tensor.copy_(state[name])


def _be_deterministic() -> None:
    """Source: https://docs.pytorch.org/docs/stable/notes/randomness.html. TF32 rounds alike in every run, and stays as it is."""
    settle_libraries()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def _save_torch(framework: PyTorch, target: Path | BinaryIO) -> None:
    state = {
        "model": framework.module.state_dict(),
        "optimizer": framework.optimizer.state_dict(),
    }
    torch.save(state, target)


def _load_torch(framework: PyTorch, path: Path) -> None:
    state = torch.load(path, map_location="cpu", weights_only=True)
    framework.module.load_state_dict(state["model"])
    framework.load_slots(state["optimizer"])


def _save_safetensors(framework: PyTorch, path: Path) -> None:
    state = framework.flat_state()
    safetensors.torch.save_file({name: each.contiguous() for name, each in state.items()}, path)


def _load_safetensors(framework: PyTorch, path: Path) -> None:
    framework.load_flat_state(safetensors.torch.load_file(path))


def _save_hdf5(framework: PyTorch, path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, tensor in framework.flat_state().items():
            file[name] = to_numpy(tensor.detach().cpu())


def _load_hdf5(framework: PyTorch, path: Path) -> None:
    with h5py.File(path, "r") as file:
        framework.load_flat_state(
            {
                name: from_numpy(np.asarray(file[name]), tensor.dtype)
                for name, tensor in framework.flat_state().items()
            }
        )


PyTorch.formats = {
    "torch_save": Format("model.pt", _save_torch, _load_torch),
    "safetensors": Format("model.safetensors", _save_safetensors, _load_safetensors),
    "hdf5": Format("model.h5", _save_hdf5, _load_hdf5),
}
