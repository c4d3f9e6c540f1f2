"""The contract of a framework: the calls through which one rank trains, whatever framework it uses."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.elements import copy_elements, put_elements
from ckptbench.common.errors import CheckpointError
from ckptbench.inputs.datasets.dataset import Inputs
from ckptbench.matrix.networks.layers import Network
from ckptbench.matrix.registry import Precision
from ckptbench.run.control.ranks import RankContext

BLOCK_BYTES = 1 << 20
"""A multiple of the size of every number."""
Arrays = dict[str, NDArray[np.generic]]
"""Arrays by name. Weights use the names and layouts of `matrix.networks.layers.Network.parameters`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent with momentum: v = momentum * v + g; w = w - learning_rate * v.

    `weight_decay` adds weight_decay * w to the gradient of every parameter.
    """

    learning_rate: float
    momentum: float
    weight_decay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2), with the moments' decay rates that GPTs are trained with (nanoGPT).

    In update t, from 1: m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g**2;
    w = w - learning_rate * (weight_decay * w + m / (1 - beta1**t) / (sqrt(v / (1 - beta2**t)) + epsilon)).
    `weight_decay` is 0 for the parameters that `matrix.networks.layers.is_decayed` leaves out.
    """

    learning_rate: float
    weight_decay: float
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8


Optimizer = Sgd | AdamW


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """What `Framework.build` makes ready for steps."""

    network: Network
    weights: Arrays
    """The initial ones, by the names and in the layouts of `network.parameters()`."""
    optimizer: Optimizer
    precision: Precision = "fp32"
    """With `bf16` products are computed in bfloat16, as the framework's automatic mixed precision does. All parameters and
    slots are float32 either way."""
    accumulation: int = 1
    """A step computes the gradients of so many parts of its batch one after another and adds them up, each by its share of
    the samples. Ranks average the sum."""


SECOND_MOMENT = ".second_moment"
"""Behind the name of a parameter: that of its second moment. The first moment has the name that a momentum has."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every exception of a library that reads `path` into a CheckpointError that names the file and the remedy.

    After such an error the framework may hold a part of the file's content, so it must not train on.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path}: not a checkpoint of this network and optimizer ({type(error).__name__}: {error}); "
            "resume from another version, or remove the run folder to start over"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHandle:
    """The handle of a parameter, an optimizer's slot or its counter: a tensor that is the same on every rank, and changed by the update alone.

    What the forward pass changes is no such tensor: it belongs to `Framework.local_state`. Where ranks hold shards of it
    (`shard`), `read` and `write` have those elements alone, and every `part` must lie among their bytes.
    """

    name: str
    """As in `Framework.state_dict`."""
    shape: tuple[int, ...]
    """Of the whole tensor, in the framework's own layout, which need not be that of the network's description."""
    dtype: np.dtype[np.generic]
    read: Callable[[], NDArray[np.generic]]
    """The values on the host. They are a view of the framework's memory where that is possible, so they hold only until
    the next update."""
    write: Callable[[NDArray[np.generic]], None]
    """Replace the values. The array may be kept or changed later by the caller: the framework takes a copy."""

    shard: tuple[int, int] | None = None
    """The first element in C order that this rank holds, and the one after the last. None: every rank holds all of them."""
    replica: tuple[int, int] = (0, 1)
    """Of a shard: this rank's number among those that hold it, and how many they are."""
    aliases: tuple[str, ...] = ()
    """Its other names: of an embedding that is the head as well, say. A file has the tensor once, and `handles` too."""
    in_place: bool = False
    """Whether `read` returns the framework's own memory, so that what is put there becomes the values."""
    begin_copy: Callable[[NDArray[np.uint8], slice], None] | None = None
    """`begin_copy(target, part)` begins to copy these bytes of the values, in C order, to host memory; when
    `Framework.await_copies` returns they are there. None: the memory is the host's, and `read` gives it."""

    def copy_into(self, target: NDArray[np.uint8], part: slice) -> None:
        """Copy some bytes of the values to `target`, or begin to; then `Framework.await_copies` must be called.

        The copy is NumPy's: an operation of PyTorch in the thread that copies would make a second pool of OpenMP threads.
        With more threads than cores GCC's OpenMP lets none of them spin while it waits, so every step is slower.
        """
        part = self._here(part)
        if self.begin_copy is None:
            copy_elements(self.read(), part, target)
        else:
            self.begin_copy(target, part)

    @property
    def nbytes(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def held_range(self) -> tuple[int, int]:
        """The first element in C order that this rank holds, and the one after the last."""
        return (0, math.prod(self.shape)) if self.shard is None else self.shard

    def _here(self, part: slice) -> slice:
        """Where these bytes of the tensor lie among those that this rank holds."""
        before = self.held_range[0] * self.dtype.itemsize
        return slice(part.start - before, part.stop - before)

    def memory(self, part: slice) -> NDArray[np.uint8] | None:
        """These bytes of the framework's own memory. None: it cannot be had, or does not have them in C order."""
        if not self.in_place or not (values := self.read()).flags.c_contiguous:
            return None
        return values.reshape(-1).view(np.uint8)[self._here(part)]

    def blocks(self, part: slice) -> Iterator[NDArray[np.uint8]]:
        """These bytes of the values in C order, in blocks that follow one another.

        One block without a copy, or copies of at most BLOCK_BYTES where `read` has the values in another order.
        """
        values, part = self.read(), self._here(part)
        if values.flags.c_contiguous:
            yield values.reshape(-1).view(np.uint8)[part]
            return
        for start in range(part.start, part.stop, BLOCK_BYTES):
            stop = min(start + BLOCK_BYTES, part.stop)
            block = np.empty(stop - start, np.uint8)
            copy_elements(values, slice(start, stop), block)
            yield block

    def put(self, part: slice, values: NDArray[np.uint8]) -> None:
        """Replace these bytes of the values, in C order. Only where `in_place`."""
        put_elements(self.read(), self._here(part), values)


def put_arrays(handles: Iterable[TensorHandle], found: Mapping[str, Any]) -> None:
    """Replace the values of all tensors. Raises ValueError if `found` has other ones."""
    wanted = {handle.name: handle for handle in handles}
    if odd := wanted.keys() ^ found.keys():
        raise ValueError(f"{min(odd)} is not in both")
    for name, handle in wanted.items():
        array = np.asarray(found[name])
        if (array.shape, array.dtype) != (handle.shape, handle.dtype):
            raise ValueError(
                f"{name} has shape {array.shape} and type {array.dtype}, here {handle.shape} and {handle.dtype}"
            )
        handle.write(array)


def parts_of(samples: int, accumulation: int) -> list[slice]:
    """The parts of a batch of so many samples, in order. Their sizes differ by one at most, and none is empty."""
    count = min(accumulation, samples)
    ends = [part * samples // count for part in range(count + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def left_out(what: str) -> CheckpointError:
    """The error of a framework whose `handles` would leave something out that training goes on with."""
    return CheckpointError(
        f"{what}: no checkpoint would hold that; make every parameter and slot in the framework's `build`, and name "
        "each in its `handles`"
    )


F = TypeVar("F", bound="Framework")


@dataclass(frozen=True, slots=True)
class Format(Generic[F]):
    """A file format in which a framework stores model and optimizer.

    `save(framework, path)` writes the parameters, the buffers and every optimizer slot to `path`: one plain
    file, a folder, or several files in the same folder whose names begin with that of `path`. It runs on rank 0 alone, so
    it must not communicate; but see `Framework.is_sharded`. It does not sync the files to storage, because the store does.
    A format among `registry.STREAMED` also takes a stream in place of `path`.
    `read(framework, path)` restores them, bit for bit, in a framework that was built in the same way. It executes
    nothing that it finds in the files; above all it loads no pickle. It raises where a part of the state is missing.
    """

    filename: str
    save: Callable[[F, Any], None]
    read: Callable[[F, Path], None]

    def load(self, framework: F, path: Path) -> None:
        """Call `read`. Raises CheckpointError for every exception of the format's library; see `reading`."""
        with reading(path):
            self.read(framework, path)


def _momenta(names: Iterable[str]) -> set[str]:
    """Those of these tensors of a framework that are the momentum of a parameter."""
    return {f"optimizer/{name.removeprefix('model/')}" for name in names} & {*names}


def _slots(names: Iterable[str]) -> set[str]:
    """Those of these tensors of a framework that the optimizer has for one parameter: momenta, moments, counters."""
    momenta = _momenta(names)
    return {name for name in names if {name, name.rpartition(".")[0]} & momenta}


class Framework(ABC):
    """One rank's network, optimizer and communication in one framework.

    Calls come in this order: `join` (seeds, threads, deterministic mode, meeting the other ranks), `build`, then
    `step`, `predict`, `barrier` and the formats' `save` and `load` in any order, `close` at the end.
    """

    formats: ClassVar[Mapping[str, Format]]  # type: ignore[type-arg]
    """The formats that it writes, by the names of its registry entry. The first one is its default."""

    biased_variance: ClassVar[bool] = False
    """Whether running variances follow the variance of the batch itself, rather than n / (n - 1) times it."""

    is_sharded: ClassVar[bool] = False
    """Whether each rank holds a shard of model and optimizer. Then `state_dict`, `normalized_state`, `predict` and a format's `save` gather
    what other ranks hold: every rank must call them, equally often, and rank 0 alone writes the format's files."""

    before_update: Callable[[], None] | None = None
    """Called by every step when its gradients are known and before parameters and optimizer slots change. None: no
    call. It is set before `build` and not changed after it."""

    average: Callable[[Sequence[NDArray[np.float32]]], None] | None = None
    """Averages gradients over ranks of which the framework does not know. None: it averages them itself.

    Every step calls it before `before_update`, with the gradients of all parameters on this rank, in the same order on
    every rank; it changes them in place. It is set before `build`, on a framework that is alone (`world_size` 1), on CPU.
    What it raises ends the step, perhaps as another exception, before parameters and optimizer slots have changed."""

    @classmethod
    @abstractmethod
    def join(cls, world: RankContext, *, seed: int, deterministic: bool) -> Self:
        """Configure threads, device and seeds, and meet the other ranks. Returns when all ranks are there.

        `seed` is the same on every rank. Random draws that differ by rank, such as dropout, use `seed + rank`.
        """

    @abstractmethod
    def build(self, spec: TrainSpec) -> None:
        """Make network and optimizer.

        It is called only with what the framework's registry entry `offers`. Running means begin at 0, running variances
        at 1. All optimizer slots exist afterwards, so that a checkpoint can be loaded before the first step. Each framework
        decides whether its running variances follow the biased or the unbiased variance of a batch; its class says which.
        """

    @abstractmethod
    def step(self, inputs: Inputs, labels: NDArray[np.int64]) -> float:
        """One data-parallel step: forward, backward, gradients averaged over all ranks, update.

        `inputs` are images, shape (batch_size, height, width, channels), with labels (batch_size,), or tokens with
        labels, both of shape (batch_size, length). It minimizes the mean softmax cross-entropy of the network's logits,
        and returns that of this rank, before the update. Returns when the device has finished.
        """

    @abstractmethod
    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        """The network's logits, in evaluation mode: with running statistics and without dropout.

        `inputs` are as in `step`, with any n from 1. The shape is (n, classes), of tokens (n, length, classes).
        Communicates with no other rank, unless `is_sharded`.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has called it."""

    @abstractmethod
    def abort(self) -> None:
        """Make the collectives fail in which other ranks wait. Called once, after an exception.

        It may end this process, tear down connections, or do nothing if it is enough that the launcher ends all ranks
        when one has died. It returns or ends the process within seconds. If the library would wait for other ranks when
        Python ends, flush the output and call `os._exit`.
        """

    @abstractmethod
    def state_dict(self) -> Arrays:
        """A copy of every tensor that a checkpoint's format holds, as host arrays.

        Keys: `model/<name>` for each of `Network.parameters()` and `Network.buffers()`, in their layouts, and
        `optimizer/<name>` for the momentum or the first moment of each parameter, in the same layout. Behind that name
        stands `.second_moment` for the second moment, or another word for a counter of this parameter's updates. Other
        state of the optimizer, such as a step counter, is under `optimizer/` too.
        """

    def momentum_scale(self) -> float:
        """The momenta that the framework holds, times this, are those of `Sgd`; or its first moments are those of `AdamW`."""
        return 1.0

    def normalized_state(self) -> Arrays:
        """`state_dict` with the momenta of the optimizer's description, as all frameworks have them. What is compared bit for bit is `state_dict`: scaling rounds."""
        state = self.state_dict()
        scale: Any = np.float32(self.momentum_scale())
        momenta = _momenta(state)
        return {name: array * scale if name in momenta else array for name, array in state.items()}

    @abstractmethod
    def handles(self) -> Sequence[TensorHandle]:
        """The handle of every tensor of model and optimizer, in an order that is the same on every rank and in every run.

        Their names are those of `state_dict`, without the running statistics, which are in `local_state`. Together the two are
        all that a restart needs. The handles are valid until the next `build` or `load` of a format, so strategies ask for
        them at every save. Raises CheckpointError if training goes on with other tensors too, such as a slot that an
        optimizer has made since.
        """

    def keep_memory(self, memory: NDArray[np.uint8]) -> None:  # noqa: B027 (only a GPU needs it)
        """Prepare host memory to which tensors will be copied many times: for copies from a GPU it is page-locked."""

    def release_memory(self, memory: NDArray[np.uint8]) -> None:  # noqa: B027 (only a GPU needs it)
        """Undo `keep_memory`. Nothing is copied there any more."""

    def begin_copies(self) -> None:  # noqa: B027 (only a GPU needs it)
        """Let the copies that begin from now on have the values as all work leaves them that the device has been given.

        The thread that trains calls it.
        """

    def hold_updates(self) -> None:  # noqa: B027 (only a GPU needs it)
        """Let the device begin what it is given from now on when all copies are complete that have begun.

        The thread that trains calls it, and need not wait itself.
        """

    def await_copies(self) -> None:  # noqa: B027 (only a GPU needs it)
        """Return when all copies that `TensorHandle.copy_into` has begun are complete. Another thread may call it."""

    @property
    def native_objects(self) -> Mapping[str, Any]:
        """The library's own objects, by name, for engines that serve this framework alone: its class says which.

        They are valid until the next `build`. Most frameworks need none.
        """
        return {}

    @abstractmethod
    def local_state(self) -> Arrays:
        """The state that only this rank has and no format stores: running statistics, states of random generators.

        The keys say which part of the state an array is: `buffer/<name>` running statistics, `random/<name>` states of
        random generators, `seed/<name>` seeds of dropout layers. With any other key the run fails at its start.
        """

    @abstractmethod
    def load_local_state(self, state: Arrays) -> None:
        """Restore what `local_state` returned. Called after a format's `load`."""

    def forget(self, part: str) -> None:
        """Reset a part of the loaded state to that of a new process. Negative controls of the resume proof need it.

        Every framework has the part `momentum`. Frameworks that would by default drop the gradients of the first update
        after a load also have `first_update`. Raises ValueError for any other part.
        """
        if part != "momentum":
            raise ValueError(f"{type(self).__name__} has no {part} to forget")
        handles = {handle.name: handle for handle in self.handles()}
        for name in _slots(handles):
            handles[name].write(np.zeros_like(handles[name].read()))

    @abstractmethod
    def device(self) -> str:
        """The name of the device on which it computes: `cpu`, or the model of the GPU."""

    def gpu_peak_bytes(self) -> int | None:
        """The most memory of the GPU that the framework has allocated so far. None: on a CPU, or it does not say it."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Part from the other ranks in an orderly way. Called once, when training has ended well."""
