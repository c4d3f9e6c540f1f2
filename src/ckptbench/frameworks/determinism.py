"""Deterministic mode of the libraries below the frameworks. They read it from environment variables.

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
    """Ask cuBLAS, NCCL and MKL for the same bits in every run. Variables that are already set keep their values.

    Each library reads its variables when it is first used. Call this before the first matrix product and before the
    first use of a GPU.
    """
    for name, value in LIBRARIES.items():
        os.environ.setdefault(name, value)
