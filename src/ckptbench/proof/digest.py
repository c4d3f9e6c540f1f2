"""Digests: of a tensor, so that two runs can be compared without keeping their tensors, and of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

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


def file_sha256(path: Path) -> str:
    """64 hex digits over the bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
