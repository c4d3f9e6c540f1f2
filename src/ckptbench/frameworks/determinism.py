"""Deterministic mode of the libraries below the frameworks, which they take from the environment.

`docs/determinism.md` says what each setting does, where it matters and which documentation asks for it.
"""

from __future__ import annotations

import os

LIBRARIES = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "Ring",
    "MKL_CBWR": "AUTO,STRICT",
    "MKL_DYNAMIC": "FALSE",
}


def settle_libraries() -> None:
    """Ask cuBLAS, NCCL and MKL for the same bits in every run; what the environment says already stays.

    Each reads it when it is first used: call this before the first product of matrices and the first GPU.
    """
    for name, value in LIBRARIES.items():
        os.environ.setdefault(name, value)
