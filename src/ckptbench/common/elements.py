"""Elements of an array by their place in the order of C, whatever order they have in memory. Only they are copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def copy_elements(array: NDArray[Any], part: slice, target: NDArray[np.uint8]) -> None:
    """Copy `part` of the array to `target`. Bytes are counted in the order of C, and no element is cut."""
    for view, place in _pairs(array, part, target):
        np.copyto(place, view)


def put_elements(array: NDArray[Any], part: slice, values: NDArray[np.uint8]) -> None:
    """Replace `part` of the array by `values`."""
    for view, place in _pairs(array, part, values):
        np.copyto(view, place)


def _pairs(
    array: NDArray[Any], part: slice, flat: NDArray[np.uint8]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Views of the array that are `part` one after the other, each with the bytes of `flat` that belong to it."""
    at = 0
    for view in _views(array, part.start // array.itemsize, part.stop // array.itemsize):
        yield view, flat[at : at + view.nbytes].view(array.dtype).reshape(view.shape)
        at += view.nbytes


def _views(array: NDArray[Any], start: int, stop: int) -> Iterator[NDArray[Any]]:
    """Elements `start` to `stop`: whole rows at once, and the parts of rows before and after them."""
    if start == stop:
        return
    if stop - start == array.size:
        yield array
        return
    row = array.size // len(array)
    first, last = -(-start // row), stop // row
    if first > last:
        yield from _views(array[last], start - last * row, stop - last * row)
        return
    if start < first * row:
        yield from _views(array[first - 1], start - (first - 1) * row, row)
    if first < last:
        yield array[first:last]
    if last * row < stop:
        yield from _views(array[last], 0, stop - last * row)
