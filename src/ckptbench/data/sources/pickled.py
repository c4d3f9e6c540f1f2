"""Reads pickled arrays of bytes from a source that is not trusted.

A pickle can name any function and have it called. This unpickler knows the five names that an array needs
and refuses every other; and even those stand for the plain classes below, not for NumPy's own, because a
crafted state crashes NumPy's `__setstate__` (seen with NumPy 2.4: a segmentation fault).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from io import BytesIO
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


def load(data: bytes) -> Any:
    """What was pickled, by Python 2 or 3; byte strings as bytes, arrays as PickledArray.

    Raises ValueError where it is no pickle, is cut, or asks for more than plain values and arrays.
    """
    malformed = (
        pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, LookupError, MemoryError,
        RecursionError, TypeError, ValueError,
    )  # fmt: skip
    try:
        return _ArrayUnpickler(BytesIO(data), encoding="bytes").load()
    except malformed as error:
        raise ValueError(f"not a pickle of plain arrays: {error}") from error


class PickledDtype:
    def __init__(self, name: bytes | str, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Byte order and fields, of which single bytes have none."""


class PickledArray:
    """The state of an array: (version, shape, dtype, whether in Fortran order, its bytes)."""

    state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def bytes_array(self) -> NDArray[np.uint8]:
        """Raises ValueError unless it is a whole array of type uint8."""
        match self.state:
            case (_, tuple(shape), PickledDtype(name=b"u1" | "u1"), fortran, bytes(content)) if all(
                isinstance(length, int) and length >= 0 for length in shape
            ):
                return np.frombuffer(content, np.uint8).reshape(
                    shape, order="F" if fortran else "C"
                )
        raise ValueError("an array of another type than uint8, or none")


def _reconstruct(*_: object) -> PickledArray:
    return PickledArray()


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for Python 2; only with the encoding that it uses for that."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in encoding {encoding!r}")
    return text.encode("latin1")


class _ArrayUnpickler(pickle.Unpickler):
    # NumPy moved `_reconstruct` between its versions 1 and 2.
    _ADMITTED: ClassVar[Mapping[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): PickledArray,
        ("numpy", "dtype"): PickledDtype,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self._ADMITTED[module, name]
