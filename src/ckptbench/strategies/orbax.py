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

# JAX reads it when it is first used. Orbax needs JAX, but no device of it: the arrays are on the host.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import orbax.checkpoint as ocp

from ckptbench.checkpoints.version import names_in
from ckptbench.frameworks.contract import put_arrays, reading
from ckptbench.strategies.contract import done
from ckptbench.strategies.one_writer import OneWriter

STATE = "state"
"""The folder in a version that Orbax writes."""


class Orbax(OneWriter):
    """Orbax makes a new copy for each save."""

    _checkpointer: ocp.AsyncCheckpointer | None = None

    def _begin(self, staging: Path) -> Future[None]:
        if self._checkpointer is None:
            # If its threads may make the folder and cannot, other threads of it wait for the folder for minutes.
            options = ocp.AsyncOptions(create_directories_asynchronously=False)
            self._checkpointer = ocp.AsyncCheckpointer(
                _handler(use_compression=bool(self._options["compression"])),
                async_options=options,
                multiprocessing_options=_alone(),
            )
        tensors = self._training_state.state()
        arrays = {tensor.name: tensor.read() for tensor in tensors}
        self._checkpointer.save(staging / STATE, args=ocp.args.PyTreeSave(arrays))
        return done(None)

    def _finish(self, staging: Path) -> list[str]:
        assert self._checkpointer is not None
        self._checkpointer.wait_until_finished()  # it raises the error of the save
        return [f"{STATE}/{name}" for name in names_in(staging / STATE)]

    def _load(self, folder: Path) -> None:
        tensors = self._training_state.state()
        # Arrays of JAX would be restored to the devices that the writers had.
        as_numpy = {tensor.name: ocp.RestoreArgs(restore_type=np.ndarray) for tensor in tensors}
        with (
            reading(folder / STATE),
            ocp.Checkpointer(_handler(), multiprocessing_options=_alone()) as checkpointer,
        ):
            args = ocp.args.PyTreeRestore(restore_args=as_numpy)
            put_arrays(tensors, checkpointer.restore(folder / STATE, args=args))

    def _end(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
            self._checkpointer = None


def _handler(**options: bool) -> ocp.PyTreeCheckpointHandler:
    return ocp.PyTreeCheckpointHandler(multiprocessing_options=_alone(), **options)


def _alone() -> ocp.options.MultiprocessingOptions:
    """Orbax waits for no other rank, and expects no files of others."""
    own = {jax.process_index()}
    return ocp.options.MultiprocessingOptions(primary_host=None, active_processes=own)
