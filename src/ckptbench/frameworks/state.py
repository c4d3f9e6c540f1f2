"""Model and optimizer tensor by tensor, in the framework's own memory, for strategies that write them themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def bytes(self) -> NDArray[np.uint8]:
        """`read` as bytes in C order, shape (nbytes,). It copies only where the framework's memory is not in that order."""
        flat = np.ascontiguousarray(self.read()).reshape(-1)
        return flat.view(np.uint8)
