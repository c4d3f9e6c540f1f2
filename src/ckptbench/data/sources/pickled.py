"""Reads pickled arrays of bytes from a source that is not trusted.

A pickle can name any function and have it called. This unpickler knows only the names that an array needs and refuses
every other. These names lead to the plain classes below and not to NumPy's own: a manipulated state crashes NumPy's
`__setstate__` (seen with NumPy 2.4: a segmentation fault).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from io import BytesIO
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


def load(data: bytes) -> Any:
    """The pickled object, from Python 2 or 3, with byte strings as bytes and arrays as PickledArray.

    Raises ValueError if `data` is not a pickle, is cut short, or contains more than plain values and arrays.
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
        """Ignore the byte order and the fields: single bytes have neither."""


class PickledArray:
    """The state of an array: (version, shape, dtype, whether it is in Fortran order, its bytes)."""

    state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def bytes_array(self) -> NDArray[np.uint8]:
        """The array. Raises ValueError if it is not a complete array of type uint8."""
        match self.state:
            case (_, tuple(shape), PickledDtype(name=b"u1" | "u1"), fortran, bytes(content)) if all(
                isinstance(length, int) and length >= 0 for length in shape
            ):
                return np.frombuffer(content, np.uint8).reshape(
                    shape, order="F" if fortran else "C"
                )
        raise ValueError("an incomplete array, or an array of another type than uint8")


def _reconstruct(*_: object) -> PickledArray:
    return PickledArray()


def _encode(text: str, encoding: str) -> bytes:
    """The call by which Python 3 pickles bytes for Python 2. Its encoding is always latin1; others are refused."""
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
