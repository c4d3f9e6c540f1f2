"""A short name for the bits of a tensor, so that two runs can be compared without keeping their tensors."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def digest(tensor: NDArray[np.generic]) -> str:
    """16 hex digits over dtype, shape and bytes (C order): equal tensors, bit for bit, have equal digests."""
    contiguous = np.ascontiguousarray(tensor)
    state = hashlib.sha256(f"{contiguous.dtype.str}{tensor.shape}".encode())
    state.update(contiguous.reshape(-1).view(np.uint8).data)
    return state.hexdigest()[:16]


def digests(tensors: dict[str, NDArray[np.generic]]) -> dict[str, str]:
    return {name: digest(tensor) for name, tensor in sorted(tensors.items())}
