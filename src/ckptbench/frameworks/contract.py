"""What one rank asks of a framework: the contract behind which Chainer, PyTorch and TensorFlow look alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckptbench.architectures import Network
from ckptbench.errors import CheckpointError

Arrays = dict[str, NDArray[np.generic]]
"""Arrays by name. Weights use the names and layouts of `architectures.Network.parameters`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one rank stands among the others, as its launcher told it."""

    rank: int
    world_size: int
    local_rank: int
    node: str
    threads: int
    """How many threads the rank may compute with."""
    addresses: tuple[str, ...]
    """`host:port` of every rank, free when that rank looked: for rendezvous."""
    accelerator: str = "cpu"
    """`cuda`: the rank sees one GPU, its own, as the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent with momentum: v = momentum * v + g; w = w - learning_rate * v.

    `weight_decay` adds weight_decay * w to the gradient of every parameter.
    """

    learning_rate: float
    momentum: float
    weight_decay: float


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Make one CheckpointError, which names file and remedy, of whatever a library raises over a checkpoint's file.

    The framework may then hold a part of the file, and must not be trained on.
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


F = TypeVar("F", bound="Framework")


@dataclass(frozen=True, slots=True)
class Format(Generic[F]):
    """A framework's own way to lay model and optimizer in files.

    `save(framework, path)` writes the parameters, the buffers and every optimizer slot to `path`
    (one file, or several whose names begin with it), and does not sync them to storage: the store does.
    `read(framework, path)` puts them back, bit for bit, into a framework that was built alike. It executes
    nothing that it finds in the files, no pickle above all, and raises where one lacks a part of the state.
    """

    filename: str
    save: Callable[[F, Path], None]
    read: Callable[[F, Path], None]

    def load(self, framework: F, path: Path) -> None:
        """`read`, where whatever the format's own library raises is a CheckpointError; see `reading`."""
        with reading(path):
            self.read(framework, path)


class Framework(ABC):
    """One rank's network, optimizer and communication in one framework.

    The life of one: `join` (seeds, threads, deterministic mode, meets the other ranks), `build`, then any
    order of `step`, `evaluate`, formats' `save` and `load`, `barrier`; `close` at the end.
    """

    formats: ClassVar[Mapping[str, Format]]  # type: ignore[type-arg]
    """What it writes; the names are those of its registry entry, the first one its default."""

    @classmethod
    @abstractmethod
    def join(cls, place: Place, *, seed: int, deterministic: bool) -> Self:
        """Configure threads, device and seeds, and meet the other ranks; returns when all have come.

        `seed` is the same on every rank; random draws that differ by rank (dropout) use `seed + rank`.
        """

    @abstractmethod
    def build(self, network: Network, weights: Arrays, optimizer: Sgd, batch_size: int) -> None:
        """Make network and optimizer, with these initial weights, ready for steps of `batch_size` samples.

        Float32 throughout. All optimizer slots exist afterwards, so that a load needs no step before it.
        """

    @abstractmethod
    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
        """One data-parallel step: forward, backward, gradients averaged over all ranks, update.

        `images` has shape (batch_size, height, width, channels), `labels` (batch_size,). Returns this rank's
        mean softmax cross-entropy before the update. The device has finished when this returns.
        """

    @abstractmethod
    def predict(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits, shape (n, classes), in evaluation mode (running statistics, no dropout); no communication.

        `images` has shape (n, height, width, channels) with any n from 1.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has called it."""

    @abstractmethod
    def abort(self) -> None:
        """Tear the other ranks out of any collective they wait in; called once, after an exception."""

    @abstractmethod
    def tensors(self) -> Arrays:
        """A copy of every tensor that a checkpoint's format holds, as host arrays.

        Keys: `model/<name>` for each of `Network.parameters()` and `Network.buffers()`, in their layouts, and
        `optimizer/<name>` for the momentum of each parameter, in the same layout and scaled as in `Sgd`;
        frameworks add what else their state holds under `optimizer/` (a step counter).
        """

    def held(self) -> Arrays:
        """`tensors` as the framework itself holds them, unscaled: what is compared bit for bit, as scaling rounds."""
        return self.tensors()

    @abstractmethod
    def rank_state(self) -> Arrays:
        """What is this rank's own and in no format's file: running statistics and random generators' states."""

    @abstractmethod
    def load_rank_state(self, state: Arrays) -> None:
        """Put back what `rank_state` gave, after a format's `load`."""

    @abstractmethod
    def forget(self, part: str) -> None:
        """Put a part of the loaded state back to what a new process has: a negative control of the resume proof.

        `momentum` of every framework; `first_update` of those that drop the gradients of their first update after
        a load unless they are kept from it. Raises ValueError for any other part.
        """

    @abstractmethod
    def device(self) -> str:
        """The name of the device it computes on: `cpu`, or the model of the GPU."""

    @abstractmethod
    def close(self) -> None:
        """Leave the other ranks in good order."""
