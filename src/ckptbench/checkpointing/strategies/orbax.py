"""The strategy `orbax`: Orbax' AsyncCheckpointer, which writes the framework's arrays while training continues.

Orbax (orbax-checkpoint 0.12.8) copies the arrays before `save` returns, and writes the copies in threads.
With JAX every rank writes a part of the replicated `jax.Array`s, and ranks wait for one another at the start and the end of a
save. With TensorFlow rank 0 writes NumPy arrays, and no other rank waits.

- Orbax' default compression is off here: it makes random weights a quarter smaller, and doubles the processor time.
- Each save allocates new memory and waits for the previous save. `wait_until_finished` or the next save raises errors. It
  syncs nothing.
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

from ckptbench.checkpointing.contract import done
from ckptbench.checkpointing.one_writer import WRITING_RANK, OneWriter
from ckptbench.checkpointing.version import names_in
from ckptbench.frameworks.contract import put_arrays, reading

STATE = "state"
"""The folder in a version that Orbax writes."""
ARRAYS = "arrays"
"""What JAX, and no other framework, has for engines: its own arrays."""


class Orbax(OneWriter):
    """Orbax makes a new copy for each save."""

    _checkpointer: ocp.AsyncCheckpointer | None = None

    @property
    def _writes(self) -> bool:
        """Orbax divides arrays of JAX among all ranks."""
        return super()._writes or ARRAYS in self._training_state.native_objects

    def _begin(self, staging: Path) -> Future[None]:
        if self._checkpointer is None:
            handler = ocp.PyTreeCheckpointHandler(use_compression=False)
            # If its threads may make the folder and cannot, other threads of it wait for the folder for minutes.
            options = ocp.AsyncOptions(create_directories_asynchronously=False)
            self._checkpointer = ocp.AsyncCheckpointer(handler, async_options=options)
        handles = self._training_state.handles()
        arrays = self._training_state.native_objects.get(ARRAYS) or {
            handle.name: handle.read() for handle in handles
        }
        self._checkpointer.save(staging / STATE, args=ocp.args.PyTreeSave(arrays))
        return done(None)

    def _finish(self, staging: Path) -> list[str]:
        assert self._checkpointer is not None
        self._checkpointer.wait_until_finished()  # it raises the error of the save
        if self._rank != WRITING_RANK:
            return []
        return [f"{STATE}/{name}" for name in names_in(staging / STATE)]

    def _load(self, folder: Path) -> None:
        handles = self._training_state.handles()
        # Arrays of JAX would be restored to the devices that the writers had.
        as_numpy = {handle.name: ocp.RestoreArgs(restore_type=np.ndarray) for handle in handles}
        own = {jax.process_index()}
        alone = ocp.options.MultiprocessingOptions(primary_host=None, active_processes=own)
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
        with (
            reading(folder / STATE),
            ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer,
        ):
            args = ocp.args.PyTreeRestore(restore_args=as_numpy)
            put_arrays(handles, checkpointer.restore(folder / STATE, args=args))

    def _end(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
            self._checkpointer = None
