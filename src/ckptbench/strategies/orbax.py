"""The strategy `orbax`: Orbax' AsyncCheckpointer over the framework's arrays. Rank 0 writes while training goes on.

Orbax (orbax-checkpoint 0.12.8 with JAX 0.10.2) copies the arrays, which are NumPy's, before its `save` returns, and writes
the copies in threads. Each rank is alone to Orbax, so nothing in it waits for other ranks.

- `compression` is Orbax' default, which saves a quarter of the bytes of 197 MB of random weights, and costs twice the
  processor time.
- Each save takes new memory, and waits for the save before. An error comes from `wait_until_finished` or the next save. It
  syncs nothing.
- JAX and SciPy add 626 MB to the environment.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

# JAX reads it when it is first used. Orbax needs JAX, but no device of it: the arrays are on the host.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import orbax.checkpoint as ocp

from ckptbench.checkpoints.version import names_in
from ckptbench.frameworks.contract import Tensor, reading
from ckptbench.strategies.contract import done
from ckptbench.strategies.one_writer import OneWriter

STATE = "state"
"""The folder in a version that Orbax writes."""


class Orbax(OneWriter):
    """Orbax makes a new copy for each save."""

    _checkpointer: ocp.AsyncCheckpointer | None = None

    def _begin(self, staging: Path) -> Future[None]:
        if self._checkpointer is None:
            compressed = bool(self._options["compression"])
            handler = ocp.PyTreeCheckpointHandler(use_compression=compressed)
            # If its threads may make the folder and cannot, other threads of it wait for the folder for minutes.
            options = ocp.AsyncOptions(create_directories_asynchronously=False)
            self._checkpointer = ocp.AsyncCheckpointer(handler, async_options=options)
        arrays = {tensor.name: tensor.read() for tensor in self._training_state.state()}
        self._checkpointer.save(staging / STATE, args=ocp.args.PyTreeSave(arrays))
        return done(None)

    def _finish(self, staging: Path) -> list[str]:
        assert self._checkpointer is not None
        self._checkpointer.wait_until_finished()  # it raises the error of the save
        return [f"{STATE}/{name}" for name in names_in(staging / STATE)]

    def _load(self, folder: Path) -> None:
        tensors = {tensor.name: tensor for tensor in self._training_state.state()}
        with (
            reading(folder / STATE),
            ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer,
        ):
            _restore(tensors, checkpointer.restore(folder / STATE))

    def _end(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
            self._checkpointer = None


def _restore(tensors: dict[str, Tensor], found: dict[str, Any]) -> None:
    """Replace the values of all tensors. Raises ValueError if `found` has other ones."""
    if odd := tensors.keys() ^ found.keys():
        raise ValueError(f"{min(odd)} is not in both")
    for name, tensor in tensors.items():
        array = np.asarray(found[name])
        if (array.shape, array.dtype) != (tensor.shape, tensor.dtype):
            raise ValueError(
                f"{name} has shape {array.shape} and type {array.dtype}, here {tensor.shape} and {tensor.dtype}"
            )
        tensor.write(array)
