"""Model and optimizer tensor by tensor, in the framework's own memory, for strategies that write them themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptbench.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A parameter, an optimizer's slot or its counter: the same on every rank, and changed by the update alone.

    What the forward pass changes is no such tensor: it belongs to `Framework.rank_state`.
    """

    name: str
    """As in `Framework.held`."""
    shape: tuple[int, ...]
    """In the framework's own layout, which need not be that of the network's description."""
    dtype: np.dtype[np.generic]
    read: Callable[[], NDArray[np.generic]]
    """The values on the host. They are a view of the framework's memory where that is possible, so they hold only until
    the next update."""
    write: Callable[[NDArray[np.generic]], None]
    """Replace the values. The array may be kept or changed later by the caller: the framework takes a copy."""

    in_place: bool = False
    """Whether `read` returns the framework's own memory, in C order, so that what is put there becomes the values."""
    begin_copy: Callable[[NDArray[np.uint8], slice], None] | None = None
    """`begin_copy(target, part)` begins to copy these bytes of the values, in C order, to host memory; when
    `Framework.await_copies` returns they are there. None: the memory is the host's, and `read` gives it."""

    def copy_into(self, target: NDArray[np.uint8], part: slice) -> None:
        """Copy some bytes of the values to `target`, or begin to; then `Framework.await_copies` must be called.

        The copy is NumPy's: an operation of PyTorch in the thread that copies would make a second pool of OpenMP threads.
        With more threads than cores GCC's OpenMP lets none of them spin while it waits, so every step is slower.
        """
        if self.begin_copy is None:
            np.copyto(target, self.bytes()[part])
        else:
            self.begin_copy(target, part)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def bytes(self) -> NDArray[np.uint8]:
        """`read` as bytes in C order, shape (nbytes,). It copies only where the framework's memory is not in that order."""
        flat = np.ascontiguousarray(self.read()).reshape(-1)
        return flat.view(np.uint8)


def left_out(what: str) -> CheckpointError:
    """The error of a framework whose `state` would leave something out that training goes on with."""
    return CheckpointError(
        f"{what}: no checkpoint would hold that; make every parameter and slot in the framework's `build`, and name "
        "each in its `state`"
    )
