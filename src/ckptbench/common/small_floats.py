"""Types of numbers that NumPy lacks: bfloat16, and two of 8 bits.

An array of them holds their bits, in one field that has the name of the type. So types of one size are told apart, and
arrays are copied and compared bit for bit, but nothing can be computed with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SMALL_FLOATS: dict[str, np.dtype[Any]] = {
    name: np.dtype([(name, bits)])
    for name, bits in (("bfloat16", "<i2"), ("float8_e4m3fn", "u1"), ("float8_e5m2", "u1"))
}
"""By the names that PyTorch and ml_dtypes have for them."""


def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a type of numbers, also of SMALL_FLOATS."""
    return dtype.names[0] if dtype in SMALL_FLOATS.values() else str(dtype)  # type: ignore[index]
