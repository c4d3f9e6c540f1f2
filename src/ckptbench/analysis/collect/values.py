"""Two tensors by value: how many elements differ, and how far they are from one another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Words = NDArray[np.uint64]

MOST = np.iinfo(np.int64).max
"""The largest distance that a table holds; two float64 can be twice as far apart."""
BLOCK = 1 << 20
"""Elements that are held against one another at once: bounds the memory."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A tensor against the reference's."""

    elements: int
    different: int
    """Elements with other bits: -0.0 differs from 0.0, and so does one NaN from another."""
    max_ulp: int | None
    """Largest distance in units in the last place; None where a NaN stands against a number."""
    relative_l2: float
    """||tensor - reference||2 / ||reference||2: 0 where both are equal, infinite where it is no number."""


def compare(tensor: Array, reference: Array) -> Comparison:
    """Tensors of different type or shape differ in every element, at no distance."""
    if (tensor.dtype, tensor.shape) != (reference.dtype, reference.shape):
        elements = max(tensor.size, reference.size)
        return Comparison(elements, elements, None, math.inf)
    one, other = (np.ascontiguousarray(array).reshape(-1) for array in (tensor, reference))
    different = int(np.count_nonzero(_bits(one) != _bits(other)))
    if not different:
        return Comparison(one.size, 0, 0, 0.0)
    starts = range(0, one.size, BLOCK)
    blocks = [(one[start : start + BLOCK], other[start : start + BLOCK]) for start in starts]
    distances = [_max_ulp(*block) for block in blocks]
    known = [distance for distance in distances if distance is not None]
    return Comparison(
        one.size,
        different,
        max(known) if len(known) == len(blocks) else None,
        _relative_l2([_squares(*block) for block in blocks]),
    )


def _bits(flat: Array) -> NDArray[np.unsignedinteger[Any]]:
    return flat.view(f"u{flat.dtype.itemsize}")


def _max_ulp(flat: Array, reference: Array) -> int | None:
    numbers = ~np.isnan(reference)
    if (np.isnan(flat) == numbers).any():
        return None
    one, other = _ordered(flat[numbers]), _ordered(reference[numbers])
    distances = np.maximum(one, other) - np.minimum(one, other)
    return min(int(distances.max(initial=0)), MOST)


def _ordered(flat: Array) -> Words:
    """Elements as whole numbers in their own order, neighbours one apart, both zeros the same.

    Of IEEE floats: Bruce Dawson, "Comparing Floating Point Numbers, 2012 Edition"; here shifted to be unsigned.
    """
    bits = _bits(flat).astype(np.uint64)
    sign = np.uint64(1 << (8 * flat.dtype.itemsize - 1))
    match flat.dtype.kind:
        case "f":
            magnitude = bits & (sign - np.uint64(1))
            return np.where(bits & sign != 0, sign - magnitude, sign + magnitude)
        case "i":
            return bits ^ sign
        case "u" | "b":
            return bits
    raise TypeError(f"no order of units in the last place for {flat.dtype}")


def _squares(flat: Array, reference: Array) -> tuple[float, float]:
    """Sums of the squares of the difference and of the reference, without elements that are NaN in both."""
    numbers = ~(np.isnan(flat) & np.isnan(reference))
    one, other = (array[numbers].astype(np.float64) for array in (flat, reference))
    with np.errstate(over="ignore", invalid="ignore"):
        difference = (one - other)[one != other]  # infinity - infinity is no number
        return float(difference @ difference), float(other @ other)


def _relative_l2(squares: list[tuple[float, float]]) -> float:
    difference, norm = (math.sqrt(sum(parts)) for parts in zip(*squares, strict=True))
    if difference == 0:
        return 0.0
    ratio = difference / norm if norm else math.inf
    return ratio if math.isfinite(ratio) else math.inf
