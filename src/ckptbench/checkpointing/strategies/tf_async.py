"""The strategy `tf_async`: TensorFlow's own asynchronous checkpoint; rank 0 writes while training continues.

`tf.train.Checkpoint` of TensorFlow 2.21 with `enable_async=True` copies the variables and writes the copies in its own thread.
Here it covers the raw tf.Variables. In the documented use (Keras 3's model and optimizer) every save after the first raises
`tf.function only supports singleton tf.Variables`.

- The first two saves block longer.
- `sync()` raises nothing: the next save reports that the last one failed.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import tensorflow as tf

from ckptbench.checkpointing.contract import done
from ckptbench.checkpointing.one_writer import OneWriter
from ckptbench.frameworks.contract import reading

PREFIX = "model"
"""How the names of its files begin. The file `model.index` says where in the others each tensor lies."""


class TensorFlowAsync(OneWriter):
    """TensorFlow keeps one copy for all saves of the same variables."""

    _checkpoint: tf.train.Checkpoint | None = None
    _variables: Sequence[tf.Variable] = ()

    def _begin(self, staging: Path) -> Future[None]:
        named = self._training_state.native_objects["variables"]
        variables = list(named.values())
        # By identity: two variables that are compared give a tensor.
        if list(map(id, variables)) != list(map(id, self._variables)):
            self._end()  # nothing is in writing, and the copies are of other variables
            self._checkpoint, self._variables = _over_variables(named), variables
        assert self._checkpoint is not None
        self._checkpoint.write(str(staging / PREFIX), tf.train.CheckpointOptions(enable_async=True))
        return done(None)

    def _finish(self, staging: Path) -> list[str]:
        assert self._checkpoint is not None
        self._checkpoint.sync()
        # `sync` waits, but does not raise: TensorFlow itself would raise the error of this save in the next one.
        self._checkpoint._async_checkpointer()._check_async_thread_error()
        return sorted(path.name for path in staging.glob(f"{PREFIX}.*"))

    def _load(self, folder: Path) -> None:
        with reading(folder / PREFIX):
            checkpoint = _over_variables(self._training_state.native_objects["variables"])
            checkpoint.save_counter  # noqa: B018 (makes the counter, which the asynchronous save wrote)
            checkpoint.read(str(folder / PREFIX)).assert_consumed()

    def _end(self) -> None:
        if self._checkpoint is not None:
            # TensorFlow itself would end its thread, and free the copies, only when Python ends.
            helper = self._checkpoint._async_checkpointer()
            helper._join_async_save_thread()
            atexit.unregister(helper._join_async_save_thread)
            self._checkpoint = None


def _over_variables(variables: dict[str, tf.Variable]) -> tf.train.Checkpoint:
    """A checkpoint of the parts of the variables that lie in this process, under their names in `Framework.handles`."""
    return tf.train.Checkpoint(**{name: _local(variable) for name, variable in variables.items()})


def _local(variable: tf.Variable) -> tf.Variable:
    """Under MultiWorkerMirroredStrategy a variable has one part in each process. Any other is its only part."""
    return variable.values[0] if isinstance(variable, tf.distribute.DistributedValues) else variable
