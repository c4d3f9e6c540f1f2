"""JAX with optax: one device per rank, and a mesh of all ranks over which `shard_map` averages gradients; gloo on CPU.

Deterministic mode needs no extra setting: on CPU, with a fixed number of threads, XLA computes the same bits in every run.
There is no GPU environment.

Every rank holds the whole state.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

from ckptbench.common.processes import ignore_stop_signals
from ckptbench.frameworks.contract import (
    SECOND_MOMENT,
    Arrays,
    Format,
    Framework,
    Optimizer,
    Sgd,
    TensorHandle,
    TrainSpec,
    left_out,
    parts_of,
    put_arrays,
)
from ckptbench.frameworks.determinism import settle_libraries
from ckptbench.frameworks.jax.network import Forward, Named, described, own_layout, tables_of
from ckptbench.frameworks.random_state import load_random_state, random_state, seed_all
from ckptbench.inputs.datasets.dataset import Inputs
from ckptbench.matrix.networks import layers as arch
from ckptbench.matrix.registry import Precision
from ckptbench.run.control.ranks import RankContext

with suppress(
    ModuleNotFoundError
):  # needed by its own format alone; an import within a save would be timed
    import orbax.checkpoint as ocp

RANKS = "ranks"
"""The axis of the mesh."""
ON_ALL, A_ROW_EACH = P(), P(RANKS)
"""How an array lies on the mesh: the same on all ranks, or one row (or one part of the rows) on each."""


class Jax(Framework):
    """One rank. A run with a single rank has a mesh of one device, and goes through the same code.

    Parameters and slots lie on all ranks. Of running statistics and of the key for dropout each rank has a row of its own,
    which it reads without the others; the formats hold rank 0's statistics and no key. As in Flax, the running variance
    follows the variance of the batch.
    """

    formats: ClassVar[dict[str, Format[Jax]]]
    biased_variance = True

    def __init__(self, world: RankContext, seed: int) -> None:
        self._world = world
        self._mesh = Mesh(np.array(jax.devices()), (RANKS,))
        self._key = self._row(np.asarray(jax.random.key_data(jax.random.key(seed))))

    @classmethod
    def join(cls, world: RankContext, *, seed: int, deterministic: bool) -> Self:
        seed_all(seed + world.rank)
        if deterministic:
            settle_libraries()
        os.environ["NPROC"] = str(world.threads)  # XLA's threads
        jax.config.update("jax_platforms", "cpu")
        if world.world_size > 1:
            _connect(world)
        framework = cls(world, seed + world.rank)
        ignore_stop_signals()
        return framework

    def build(self, spec: TrainSpec) -> None:
        self._network, self._precision = spec.network, spec.precision
        self._accumulation = spec.accumulation
        self._tables = tables_of(spec.network)
        self._transform = _transform(spec.optimizer)
        parameters = {
            name: spec.weights[name] if name in self._tables else own_layout(spec.weights[name])
            for name in spec.network.parameters()
        }
        tree = self._transform.init(parameters)
        slots = _flat(tree)
        self._slots = _Slots(tuple(slots), jax.tree.structure(tree))
        self._parameters = list(parameters)
        model = {f"model/{name}": array for name, array in parameters.items()}
        self._arrays = {name: self._on_all(array) for name, array in {**model, **slots}.items()}
        self._names = list(self._arrays)
        self._statistics = {
            name: self._row(np.full(shape, name.endswith(".variance"), np.float32))
            for name, shape in spec.network.buffers().items()
        }

    def _on_all(self, array: NDArray[np.generic]) -> jax.Array:
        """A copy, because JAX would go on to use the array's own memory."""
        sharding = NamedSharding(self._mesh, ON_ALL)
        return jax.make_array_from_process_local_data(sharding, np.array(array), array.shape)

    def _row(self, array: NDArray[np.generic]) -> jax.Array:
        """This rank's row of an array that has one for each rank."""
        return self._part_of_rows(np.array(array)[np.newaxis])

    def _part_of_rows(self, array: NDArray[np.generic]) -> jax.Array:
        """An array to which every rank adds as many rows. The values are the argument's own memory."""
        sharding = NamedSharding(self._mesh, A_ROW_EACH)
        return jax.make_array_from_process_local_data(sharding, array)

    def step(self, inputs: Inputs, labels: NDArray[np.int64]) -> float:
        weights = {name: self._arrays[f"model/{name}"] for name in self._parameters}
        parts = parts_of(len(labels), self._accumulation)
        gradients: Named = {}
        losses = []
        # A loop inside the compiled function would be unrolled, with the memory of all parts.
        for part in parts:
            gradients, self._statistics, self._key, loss = _gradients(
                weights,
                self._statistics,
                self._key,
                tuple(self._part_of_rows(_in_32_bits(each[part])) for each in (inputs, labels)),
                gradients,
                network=self._network,
                precision=self._precision,
                mesh=self._mesh,
                share=(part.stop - part.start) / len(labels),
                is_last=part is parts[-1],
            )
            losses.append(loss)
        if self.average is not None:
            gradients = self._averaged(gradients)
        if self.before_update is not None:
            jax.block_until_ready(gradients)
            self.before_update()
        self._arrays = _updated(
            self._arrays, gradients, slots=self._slots, transform=self._transform
        )
        jax.block_until_ready(self._arrays)
        return float(sum(_own(loss)[0] for loss in losses))

    def _averaged(self, gradients: Named) -> Named:
        """The gradients after `average`, which changes copies: an array's own memory must not change."""
        assert self.average is not None
        copies = {name: np.array(_own(gradient)) for name, gradient in gradients.items()}
        self.average(list(copies.values()))
        return {name: self._on_all(copy) for name, copy in copies.items()}

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        weights = {name: self._arrays[f"model/{name}"] for name in self._parameters}
        statistics = {name: _own(array)[0] for name, array in self._statistics.items()}
        own = {name: array.addressable_data(0) for name, array in weights.items()}
        chosen = {"network": self._network, "precision": self._precision}
        return np.array(_logits(own, statistics, _in_32_bits(inputs), **chosen))

    def barrier(self) -> None:
        if self._world.world_size > 1:
            multihost_utils.sync_global_devices("ckptbench")

    def abort(self) -> None:
        """End this process. When Python ends, JAX would wait for all ranks, for minutes."""
        if self._world.world_size > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def state_dict(self) -> Arrays:
        """Under `optimizer/` AdamW has `optimizer/count` too."""
        return {name: self._described(name, array) for name, array in self.stored().items()}

    def _described(self, name: str, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """A copy in the layout of the network's description."""
        parameter = name.partition("/")[2].removesuffix(SECOND_MOMENT)
        return np.array(array if parameter in self._tables else described(array), order="C")

    def stored(self) -> Arrays:
        """What a format holds, in JAX's own layout and memory."""
        arrays = {name: _own(array) for name, array in self._arrays.items()}
        statistics = {f"model/{name}": _own(row)[0] for name, row in self._statistics.items()}
        return {**arrays, **statistics}

    def put(self, found: Mapping[str, Any]) -> None:
        """Replace all of `stored`. Raises ValueError if `found` has other arrays."""
        put_arrays([*self.handles(), *map(self._statistic, self._statistics)], found)

    def handles(self) -> list[TensorHandle]:
        if odd := self._arrays.keys() ^ set(self._names):
            raise left_out(f"{min(odd)} came or went after the framework was built")
        return [self._handle(name) for name in self._names]

    def _handle(self, name: str) -> TensorHandle:
        def write(array: NDArray[np.generic]) -> None:
            self._arrays[name] = self._on_all(array)

        return TensorHandle(
            name=name,
            shape=self._arrays[name].shape,
            dtype=np.dtype(self._arrays[name].dtype),
            read=lambda: _own(self._arrays[name]),
            write=write,
        )

    def _statistic(self, name: str) -> TensorHandle:
        """A running statistic of this rank, which is no part of `handles`."""

        def write(array: NDArray[np.generic]) -> None:
            self._statistics[name] = self._row(array)

        return TensorHandle(
            name=f"model/{name}",
            shape=self._statistics[name].shape[1:],
            dtype=np.dtype(np.float32),
            read=lambda: _own(self._statistics[name])[0],
            write=write,
        )

    @property
    def native_objects(self) -> dict[str, Any]:
        """`arrays`: the jax.Array of every tensor of `handles`, by its name. The next update deletes them."""
        return {"arrays": dict(self._arrays)}

    def local_state(self) -> Arrays:
        statistics = {f"buffer/{name}": _own(row)[0] for name, row in self._statistics.items()}
        own = {**statistics, "random/jax": _own(self._key)[0]}
        return {**random_state(), **{name: np.array(array) for name, array in own.items()}}

    def load_local_state(self, state: Arrays) -> None:
        load_random_state(state)
        self._key = self._row(state["random/jax"])
        self._statistics = {name: self._row(state[f"buffer/{name}"]) for name in self._statistics}

    def device(self) -> str:
        return "cpu"

    def close(self) -> None:
        """Wait for all ranks: one that stayed on longer would find the coordinator gone."""
        if self._world.world_size > 1:
            jax.distributed.shutdown()


def _connect(world: RankContext) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would handle SIGTERM.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        world.addresses[0],
        world.world_size,
        world.rank,
        cluster_detection_method="deactivate",  # the launcher knows who is where
    )


def _in_32_bits(array: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as JAX computes with them."""
    return array.astype(np.int32) if array.dtype.kind in "iu" else array


def _own(array: jax.Array) -> NDArray[np.generic]:
    """What this rank has of an array: JAX's own memory."""
    return np.asarray(array.addressable_data(0))


@functools.cache
def _transform(optimizer: Optimizer) -> optax.GradientTransformation:
    """The same object for the same settings, so that the update is compiled once."""
    if isinstance(optimizer, Sgd):
        return optax.chain(
            optax.add_decayed_weights(optimizer.weight_decay),
            optax.sgd(optimizer.learning_rate, momentum=optimizer.momentum),
        )
    return optax.adamw(
        optimizer.learning_rate,
        b1=optimizer.beta1,
        b2=optimizer.beta2,
        eps=optimizer.epsilon,
        weight_decay=optimizer.weight_decay,
        mask=lambda weights: {name: arch.is_decayed(name) for name in weights},
    )


@dataclass(frozen=True)
class _Slots:
    """How optax arranges its slots."""

    names: tuple[str, ...]
    tree: Any


def _flat(slots: optax.OptState) -> dict[str, Any]:
    """Optax' slots by the names of the contract. In its trees a trace or a moment has the name of its parameter."""
    return {_slot_name(path): leaf for path, leaf in jax.tree.leaves_with_path(slots)}


def _slot_name(path: tuple[Any, ...]) -> str:
    *_, kind, last = path
    if not isinstance(last, jax.tree_util.DictKey):
        return f"optimizer/{last.name}"
    return f"optimizer/{last.key}{SECOND_MOMENT if kind.name == 'nu' else ''}"


@functools.partial(jax.jit, static_argnames=("network", "precision", "mesh", "share", "is_last"))
def _gradients(
    weights: Named,
    statistics: Named,
    keys: jax.Array,
    part: tuple[jax.Array, ...],
    before: Named,
    *,
    network: arch.Network,
    precision: Precision,
    mesh: Mesh,
    share: float,
    is_last: bool,
) -> tuple[Named, Named, jax.Array, jax.Array]:
    """Gradients of a part of the batch, added to those of the parts `before` it; each rank's new statistics, its next key
    and its share of the loss. `part` is inputs and labels, `share` its share of the batch's samples.

    Each rank has a row of gradients of its own. Those of the last part are averaged over the ranks.
    """

    def of_rank(
        weights: Named,
        statistics: Named,
        keys: jax.Array,
        part: tuple[jax.Array, ...],
        before: Named,
    ) -> tuple[Named, Named, jax.Array, jax.Array]:
        inputs, labels = part
        after, now = jax.random.split(jax.random.wrap_key_data(keys[0]))

        def losses(weights: Named) -> tuple[jax.Array, tuple[jax.Array, Named]]:
            own = {name: row[0] for name, row in statistics.items()}
            forward = Forward(weights, own, precision, now)
            logits = forward.logits(network, inputs)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            loss = share * losses.mean()
            return loss, (loss, forward.changed)

        gradients, (loss, changed) = jax.grad(losses, has_aux=True)(weights)
        if before:
            gradients = {name: before[name][0] + each for name, each in gradients.items()}
        gradients = jax.lax.pmean(gradients, RANKS) if is_last else _rows(gradients)
        key = jax.random.key_data(after)[jnp.newaxis]
        return gradients, _rows(changed), key, loss[jnp.newaxis]

    # Unchecked, as the check has `grad` itself add up the gradients of all ranks.
    on_ranks = jax.shard_map(
        of_rank,
        mesh=mesh,
        in_specs=(ON_ALL, *[A_ROW_EACH] * 4),
        out_specs=(ON_ALL if is_last else A_ROW_EACH, *[A_ROW_EACH] * 3),
        check_vma=False,
    )
    return on_ranks(weights, statistics, keys, part, before)


def _rows(named: Named) -> Named:
    return {name: each[jnp.newaxis] for name, each in named.items()}


# XLA overwrites the donated values, unless a NumPy array returned by `TensorHandle.read` keeps them alive.
@functools.partial(jax.jit, static_argnames=("slots", "transform"), donate_argnames="arrays")
def _updated(
    arrays: Named, gradients: Named, *, slots: _Slots, transform: optax.GradientTransformation
) -> Named:
    weights = {name: arrays[f"model/{name}"] for name in gradients}
    before = jax.tree.unflatten(slots.tree, [arrays[name] for name in slots.names])
    updates, after = transform.update(gradients, before, weights)
    weights = optax.apply_updates(weights, updates)
    return {**{f"model/{name}": array for name, array in weights.items()}, **_flat(after)}


@functools.partial(jax.jit, static_argnames=("network", "precision"))
def _logits(
    weights: Named,
    statistics: Named,
    inputs: jax.Array,
    *,
    network: arch.Network,
    precision: Precision,
) -> jax.Array:
    return Forward(weights, statistics, precision, None).logits(network, inputs)


def _alone() -> ocp.options.MultiprocessingOptions:
    """Orbax waits for no other rank, and expects no files of others."""
    own = {jax.process_index()}
    return ocp.options.MultiprocessingOptions(primary_host=None, active_processes=own)


def _orbax() -> ocp.Checkpointer:
    alone = _alone()
    handler = ocp.PyTreeCheckpointHandler(use_compression=False, multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _save_orbax(framework: Jax, path: Path) -> None:
    with _orbax() as checkpointer:
        checkpointer.save(path.absolute(), args=ocp.args.PyTreeSave(framework.stored()))


def _read_orbax(framework: Jax, path: Path) -> None:
    as_numpy = dict.fromkeys(framework.stored(), ocp.RestoreArgs(restore_type=np.ndarray))
    with _orbax() as checkpointer:
        framework.put(
            checkpointer.restore(
                path.absolute(), args=ocp.args.PyTreeRestore(restore_args=as_numpy)
            )
        )


def _save_npz(framework: Jax, path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **framework.stored())  # type: ignore[arg-type]


def _read_npz(framework: Jax, path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        framework.put({name: archive[name] for name in archive.files})


Jax.formats = {
    "orbax": Format("model", _save_orbax, _read_orbax),
    "npz": Format("model.npz", _save_npz, _read_npz),
}
