"""Digests of tensors. They show whether two runs are equal, without keeping all tensors."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def digest(tensor: NDArray[np.generic]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of dtype, shape and bytes (C order). Equal bits: equal digests."""
    contiguous = np.ascontiguousarray(tensor)
    state = hashlib.sha256(f"{contiguous.dtype.str}{tensor.shape}".encode())
    state.update(contiguous.reshape(-1).view(np.uint8).data)
    return state.hexdigest()[:16]


def digests(tensors: dict[str, NDArray[np.generic]]) -> dict[str, str]:
    return {name: digest(tensor) for name, tensor in sorted(tensors.items())}
