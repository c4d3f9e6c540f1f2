"""One rank of ChainerMN: its steps, its state and its formats."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import chainer
import chainermn
import numpy as np
from chainer import functions
from numpy.typing import NDArray

from ckptbench.common.errors import LaunchError
from ckptbench.common.shared_memory import MPICH, forget_names, named_segments, remove_unused
from ckptbench.frameworks.chainer.network import ATTRIBUTES, Model
from ckptbench.frameworks.contract import (
    Arrays,
    Format,
    Framework,
    Sgd,
    TensorHandle,
    TrainSpec,
    left_out,
)
from ckptbench.frameworks.determinism import settle_libraries
from ckptbench.frameworks.random_state import load_random_state, random_state, seed_all
from ckptbench.inputs.datasets.dataset import Inputs
from ckptbench.matrix.networks.layers import Network
from ckptbench.run.control.ranks import RankContext

with suppress(ModuleNotFoundError):  # needed by HDF5 alone; an import within a save would be timed
    import h5py

LEFT_BEHIND_SECONDS = 600.0
"""Age of a segment of MPICH that cannot belong to a run that is starting, wherever that run's processes are seen."""


@dataclass(frozen=True, slots=True)
class _State:
    """The content of a checkpoint's file, with the `serialize` that Chainer's serializers call."""

    model: Model
    optimizer: Any

    def serialize(self, serializer: Any) -> None:
        self.model.serialize(serializer["model"])
        self.optimizer.serialize(serializer["optimizer"])


def _save_npz(framework: Chainer, path: Path, *, compression: bool) -> None:
    chainer.serializers.save_npz(str(path), framework.serialized, compression=compression)


def _load_npz(framework: Chainer, path: Path) -> None:
    # Chainer's load_npz would load pickles. Its deserializer also takes an archive that refuses pickles.
    with np.load(path, allow_pickle=False) as archive:
        chainer.serializers.NpzDeserializer(archive).load(framework.serialized)


def _save_hdf5(framework: Chainer, path: Path, *, gzip_level: int | None) -> None:
    chainer.serializers.save_hdf5(str(path), framework.serialized, compression=gzip_level)


def _load_hdf5(framework: Chainer, path: Path) -> None:
    with h5py.File(path, "r") as file:
        chainer.serializers.HDF5Deserializer(file).load(framework.serialized)


SLOT = "v"
"""Chainer's name of the momentum."""


class Chainer(Framework):
    """One rank of a ChainerMN job, started by the `mpiexec` of the MPI that mpi4py is linked to.

    The running variance follows n / (n - 1) of the batch's variance.
    """

    formats: ClassVar = {
        "npz": Format("model.npz", partial(_save_npz, compression=False), _load_npz),
        "npz_compressed": Format("model.npz", partial(_save_npz, compression=True), _load_npz),
        "hdf5": Format("model.h5", partial(_save_hdf5, gzip_level=None), _load_hdf5),
        "hdf5_compressed": Format("model.h5", partial(_save_hdf5, gzip_level=4), _load_hdf5),
    }

    _network: Network
    _model: Model
    _optimizer: Any

    def __init__(self, communicator: Any, device: Any) -> None:
        self._communicator = communicator
        self._device = device

    @classmethod
    def join(cls, world: RankContext, *, seed: int, deterministic: bool) -> Self:
        on_gpu = world.accelerator == "cuda"
        device = chainer.get_device("@cupy:0" if on_gpu else "@numpy")
        device.use()
        if deterministic:
            _be_deterministic()
        seed_all(seed + world.rank)
        device.xp.random.seed(seed + world.rank)
        over_nccl = on_gpu and world.world_size > 1
        communicator = chainermn.create_communicator(
            "pure_nccl" if over_nccl else "naive",
            mpi_comm=_own_communicator() if world.world_size == 1 else None,
        )
        own = world.rank if world.world_size > 1 else 0
        if (communicator.rank, communicator.size) != (own, world.world_size):
            raise LaunchError(
                f"rank {world.rank} of {world.world_size} is rank {communicator.rank} of "
                f"{communicator.size} to MPI: start it with the mpiexec of the MPI in its environment"
            )
        framework = cls(communicator, device)
        framework.barrier()
        # All ranks of this node have mapped MPICH's segment by now. MPICH itself removes its name only when MPI ends in
        # an orderly way: a killed run would leave it behind.
        forget_names(MPICH)
        if world.local_rank == 0:
            # What a run has left that was killed before it came here, with its launcher or on another node than that.
            remove_unused(named_segments(MPICH, older_than_s=LEFT_BEHIND_SECONDS))
        return framework

    def build(self, spec: TrainSpec) -> None:
        assert isinstance(spec.optimizer, Sgd)
        self._network = spec.network
        self._model = Model(spec.network, spec.weights)
        self._model.to_device(self._device)
        self._optimizer = self._sgd(spec.optimizer)
        for parameter in self._model.params():
            # Chainer itself would make the slots only in the first update.
            parameter.update_rule._init_states(parameter)
        if self._communicator.size > 1:
            self._optimizer = self._data_parallel(self._optimizer)

    def _sgd(self, settings: Sgd) -> Any:
        optimizer = chainer.optimizers.MomentumSGD(settings.learning_rate, settings.momentum)
        optimizer.setup(self._model)
        if settings.weight_decay:
            optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(settings.weight_decay))
        return optimizer

    def _data_parallel(self, optimizer: Any) -> Any:
        """A multi-node optimizer that averages gradients in every update, the first one included.

        By default its first `update` broadcasts the parameters and drops the gradients. Here no broadcast is needed:
        parameters are equal on all ranks after `build` and after `load`. Calling `is_changed` once makes the parameters
        known, and `update` then does not broadcast.
        """
        parallel = chainermn.create_multi_node_optimizer(optimizer, self._communicator)
        parallel.is_changed(self._model)
        return parallel

    def step(self, inputs: Inputs, labels: NDArray[np.int64]) -> float:
        self._model.cleargrads()
        targets = self._device.send(labels)
        loss = functions.softmax_cross_entropy(self._model(self._images(inputs)), targets)
        loss.backward()
        if self.average is not None:
            self.average([parameter.grad for _, parameter in sorted(self._model.namedparams())])
        if self.before_update is not None:
            self.before_update()
        self._optimizer.update()
        # Reading the loss waits for the whole stream, the update included.
        return float(loss.array)

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            return _to_host(self._model(self._images(inputs)).array)

    def _images(self, inputs: Inputs) -> Any:
        """With the channels first."""
        return self._device.send(np.ascontiguousarray(inputs.transpose(0, 3, 1, 2)))

    def barrier(self) -> None:
        self._communicator.mpi_comm.Barrier()

    def abort(self) -> None:
        """End all ranks. MPI ends this process too, so this call does not return."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._communicator.mpi_comm.Abort(1)

    @property
    def serialized(self) -> _State:
        """The state that Chainer's serializers save and load."""
        return _State(self._model, self._optimizer)

    def momentum_scale(self) -> float:
        """MomentumSGD keeps v = momentum * v - learning_rate * g."""
        return float(-1 / self._optimizer.lr)

    def state_dict(self) -> Arrays:
        parameters = {name: self._variable(name) for name in self._network.parameters()}
        return {
            **{f"model/{name}": _to_host(variable.array) for name, variable in parameters.items()},
            **{f"model/{name}": statistics for name, statistics in self._buffers().items()},
            **{
                f"optimizer/{name}": _to_host(variable.update_rule.state[SLOT])
                for name, variable in parameters.items()
            },
            "optimizer/steps": np.asarray(self._optimizer.t, np.int64),
        }

    @property
    def native_objects(self) -> dict[str, Any]:
        """`model`: the chain; `optimizer`: of several ranks the multi-node one; `communicator`: ChainerMN's."""
        return {
            "model": self._model,
            "optimizer": self._optimizer,
            "communicator": self._communicator,
        }

    def handles(self) -> list[TensorHandle]:
        parameters = {name: self._variable(name) for name in self._network.parameters()}
        known = {id(parameter) for parameter in parameters.values()}
        for name, parameter in self._model.namedparams():
            if id(parameter) not in known:
                raise left_out(f"the chain has the parameter {name}, which the network has not")
            if parameter.update_rule.state.keys() != {SLOT}:
                names = ", ".join(sorted(parameter.update_rule.state))
                raise left_out(f"the optimizer has the slots {names} of {name}")
        return [
            *(self._weights(f"model/{name}", variable) for name, variable in parameters.items()),
            *(self._slot(f"optimizer/{name}", each) for name, each in parameters.items()),
            self._counter(),
        ]

    def _weights(self, name: str, parameter: Any) -> TensorHandle:
        return self._handle(name, lambda: parameter.array)

    def _slot(self, name: str, parameter: Any) -> TensorHandle:
        return self._handle(name, lambda: parameter.update_rule.state[SLOT])

    def _handle(self, name: str, memory: Callable[[], Any]) -> TensorHandle:
        """A handle whose array, NumPy's or CuPy's, is what `memory` returns."""

        def write(array: NDArray[np.generic]) -> None:
            memory()[...] = self._device.send(array)

        array = memory()
        return TensorHandle(
            name=name,
            shape=array.shape,
            dtype=array.dtype,
            read=lambda: chainer.backends.cuda.to_cpu(memory()),
            write=write,
            in_place=isinstance(array, np.ndarray),
        )

    def _counter(self) -> TensorHandle:
        """The number of updates, which the optimizer and the update rule of every parameter count alike."""

        def write(array: NDArray[np.generic]) -> None:
            self._optimizer.t = int(array)
            for parameter in self._model.params():
                parameter.update_rule.t = int(array)

        return TensorHandle(
            name="optimizer/steps",
            shape=(),
            dtype=np.dtype(np.int64),
            read=lambda: np.asarray(self._optimizer.t, np.int64),
            write=write,
        )

    def local_state(self) -> Arrays:
        return {
            **{f"buffer/{name}": statistics for name, statistics in self._buffers().items()},
            **random_state(),
        }

    def load_local_state(self, state: Arrays) -> None:
        for name in self._network.buffers():
            self._variable(name)[...] = self._device.send(state[f"buffer/{name}"])
        load_random_state(state)

    def forget(self, part: str) -> None:
        if part == "first_update" and self._communicator.size > 1:
            # A multi-node optimizer that knows no parameters takes them for new in its next update.
            self._optimizer.target_params.clear()
        else:
            super().forget(part)

    def _buffers(self) -> Arrays:
        return {name: _to_host(self._variable(name)) for name in self._network.buffers()}

    def _variable(self, name: str) -> Any:
        """Chainer's object for this name of the network: a Parameter, or for running statistics an array."""
        layer, _, kind = name.rpartition(".")
        return getattr(self._model[layer], ATTRIBUTES[kind])

    def device(self) -> str:
        if self._device.xp is np:
            return "cpu"
        properties = self._device.xp.cuda.runtime.getDeviceProperties(self._device.device.id)
        return str(properties["name"].decode())

    def close(self) -> None:
        self.barrier()
        self._communicator.finalize()


def _own_communicator() -> Any:
    """That of a rank which is told to be alone, even where MPI has started others beside it."""
    from mpi4py import MPI  # not at the top: importing it starts MPI

    return MPI.COMM_SELF


def _be_deterministic() -> None:
    """Set deterministic mode for all threads, whatever Chainer's own environment variables say.

    Source: https://docs.chainer.org/en/stable/reference/configuration.html. CUB, CuPy's default accelerator, reduces in
    one order on one GPU, so `CUPY_ACCELERATORS` stays as it is. Dropout masks come from NumPy's generator, not CuPy's.
    """
    settle_libraries()
    config = chainer.global_config
    config.cudnn_deterministic = True
    config.autotune = False
    config.cudnn_fast_batch_normalization = False
    config.use_ideep = "never"
    config.warn_nondeterministic = True


def _to_host(array: Any) -> Any:
    """A copy on the host. It is never a view of an array that training changes later."""
    return np.array(chainer.backends.cuda.to_cpu(array))
