"""Tensors of PyTorch as arrays of NumPy, and as handles of the contract."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ckptbench.common.small_floats import SMALL_FLOATS, name_of
from ckptbench.frameworks.contract import TensorHandle

Memory = tuple[Any, ...]
"""Where the numbers of a tensor lie in this process, and how."""


def by_memory(
    named: Mapping[str, torch.Tensor],
    own: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
) -> dict[Memory, list[str]]:
    """The names of each tensor by where what it has in this process (`own`) lies: tied ones have several. Empty ones lie nowhere."""
    found: dict[Memory, list[str]] = {}
    for name, tensor in named.items():
        each = own(tensor)
        memory = each.data_ptr() or id(tensor), each.shape, each.stride(), each.dtype
        found.setdefault(memory, []).append(name)
    return found


def handle_of(
    names: list[str], tensor: torch.Tensor, copying: torch.cuda.Stream | None
) -> TensorHandle:
    values = tensor.detach()
    # Made once, because saves make training wait.
    on_host = to_numpy(values) if copying is None else None

    def begin_copy(target: NDArray[np.uint8], part: slice) -> None:
        """In a stream beside that of training; `begin_copies` and `hold_updates` let one wait for the other."""
        with torch.cuda.stream(copying):
            flat = values.contiguous().view(-1).view(torch.uint8)
            torch.from_numpy(target).copy_(flat[part], non_blocking=True)

    def write(array: NDArray[np.generic]) -> None:
        values.copy_(from_numpy(array, values.dtype))

    return TensorHandle(
        name=names[0],
        aliases=tuple(names[1:]),
        shape=tuple(values.shape),
        dtype=_numpy_type(values.dtype),
        read=lambda: to_numpy(values.cpu()) if on_host is None else on_host,
        write=write,
        in_place=copying is None,
        begin_copy=None if copying is None else begin_copy,
    )


@functools.cache
def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    name = str(dtype).removeprefix("torch.")
    return SMALL_FLOATS.get(name) or np.dtype(name)


def to_numpy(tensor: torch.Tensor) -> NDArray[np.generic]:
    """The tensor's own memory as an array."""
    own = _numpy_type(tensor.dtype)
    if own.names is None:
        return tensor.numpy()
    return tensor.view(getattr(torch, own[0].name)).numpy().view(own)


def from_numpy(array: NDArray[np.generic], dtype: torch.dtype) -> torch.Tensor:
    """The array's own memory as a tensor. Raises ValueError if its numbers are of another type."""
    own = _numpy_type(dtype)
    if array.dtype != own:
        raise ValueError(f"the numbers are {name_of(array.dtype)}, not {name_of(own)}")
    if own.names is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(own[0])).view(dtype)


def array_of(tensor: torch.Tensor) -> NDArray[np.generic]:
    return to_numpy(tensor.detach().cpu()).copy()


def check_shape(name: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    if found.shape != wanted.shape:
        raise ValueError(f"{name} has shape {tuple(found.shape)}, not {tuple(wanted.shape)}")
