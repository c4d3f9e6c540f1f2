"""Deterministic mode of the libraries below the frameworks. They read it from environment variables.

`docs/names.md` has what every framework sets beside, from its docstring.
"""

from __future__ import annotations

import os

LIBRARIES = {
    # A workspace for each stream: https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # Not chosen by size or switch: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    "NCCL_ALGO": "Ring",
    # One order of sums, wherever matrices lie in memory, and one number of threads:
    # https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/2025-1/reproducibility-conditions.html
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
