"""What the calibration trains, and its two strategies: one that does nothing and one that stalls a known time.

They are in the registries only while an audit runs, so no config can name them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpoints.version import Version
from ckptbench.errors import CheckpointError
from ckptbench.frameworks.contract import Arrays, Format, Framework, Sgd
from ckptbench.frameworks.random_state import load_random_state, random_state, seed_all
from ckptbench.frameworks.state import Tensor
from ckptbench.matrix.catalogue import FRAMEWORKS, STRATEGIES, FrameworkEntry, StrategyEntry
from ckptbench.matrix.levels import SHARED
from ckptbench.networks.layers import Dense, Flatten, Network
from ckptbench.networks.models import ARCHITECTURES
from ckptbench.runs.position import Position
from ckptbench.strategies.contract import Share, Strategy, done
from ckptbench.world.seats import Place

FRAMEWORK, MODEL, FORMAT = "audit_numpy", "audit_linear", "audit_nothing"
NOTHING, STALLING = "audit_null", "audit_stall"
STALL_S = 0.1
"""The known stall of each save."""
SPIN_S = 0.003
"""The end of the stall, which is spent computing: a sleep alone would last as long as the kernel likes."""


class Null(Strategy):
    """Saves nothing, at once."""

    def save(self, position: Position) -> Share:
        self._staging(SHARED, position.step)
        return Share(captured=done(None), written={SHARED: done(())})

    def load(self, version: Version, folder: Path) -> None:
        raise CheckpointError(f"{version.folder} holds nothing: it was made by the audit")


class Stall(Null):
    """Saves nothing, and takes a known time for it."""

    def save(self, position: Position) -> Share:
        end_s = time.perf_counter() + STALL_S
        share = super().save(position)
        time.sleep(max(0.0, end_s - time.perf_counter() - SPIN_S))
        while time.perf_counter() < end_s:
            pass
        return share


class Regression(Framework):
    """Softmax regression in NumPy, on one rank."""

    formats: ClassVar[dict[str, Format[Regression]]] = {}
    weights: dict[str, NDArray[np.float32]]
    momenta: dict[str, NDArray[np.float32]]

    @classmethod
    def join(cls, place: Place, *, seed: int, deterministic: bool) -> Self:
        seed_all(seed + place.rank)
        return cls()

    def build(self, network: Network, weights: Arrays, optimizer: Sgd, batch_size: int) -> None:
        self.weights = {name: array.astype(np.float32) for name, array in weights.items()}
        self.momenta = {name: np.zeros_like(array) for name, array in self.weights.items()}
        self._sgd = optimizer

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
        logits = self.predict(images)
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(np.maximum(chances[rows, labels], 1e-30)).mean())
        chances[rows, labels] -= 1
        error = (chances / len(labels)).astype(np.float32)
        gradients = {"head.kernel": error.T @ _flat(images), "head.bias": error.sum(0)}
        if self.before_update is not None:
            self.before_update()
        for name, gradient in gradients.items():
            self.momenta[name] *= np.float32(self._sgd.momentum)
            self.momenta[name] += gradient
            self.weights[name] -= np.float32(self._sgd.learning_rate) * self.momenta[name]
        return loss

    def predict(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = (
            _flat(images) @ self.weights["head.kernel"].T + self.weights["head.bias"]
        )
        return logits

    def barrier(self) -> None:
        """There is one rank."""

    def abort(self) -> None:
        """There is one rank."""

    def tensors(self) -> Arrays:
        model = {f"model/{name}": array.copy() for name, array in self.weights.items()}
        return {**model, **{f"optimizer/{name}": a.copy() for name, a in self.momenta.items()}}

    def state(self) -> list[Tensor]:
        return [
            _tensor(f"{kind}/{name}", array)
            for kind, arrays in (("model", self.weights), ("optimizer", self.momenta))
            for name, array in arrays.items()
        ]

    def rank_state(self) -> Arrays:
        return random_state()

    def load_rank_state(self, state: Arrays) -> None:
        load_random_state(state)

    def forget(self, part: str) -> None:
        if part != "momentum":
            raise ValueError(part)
        for array in self.momenta.values():
            array[...] = 0

    def device(self) -> str:
        return "cpu"

    def close(self) -> None:
        """Nothing is open."""


def _tensor(name: str, array: NDArray[np.float32]) -> Tensor:
    def write(content: NDArray[np.generic]) -> None:
        array[...] = content

    return Tensor(
        name=name,
        shape=array.shape,
        dtype=array.dtype,
        read=lambda: array,
        write=write,
        in_place=True,
    )


def _flat(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Channels first, as Flatten says."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def linear(image: tuple[int, int, int], classes: int) -> Network:
    """One dense layer over all pixels."""
    return Network((Flatten(), Dense(name="head", inputs=int(np.prod(image)), outputs=classes)))


@contextmanager
def registered() -> Iterator[None]:
    """Have the parts in the registries meanwhile."""
    here = __name__
    FRAMEWORKS[FRAMEWORK] = FrameworkEntry(
        location=f"{here}:Regression", formats=(FORMAT,), omissions=()
    )
    for name, kind in ((NOTHING, "Null"), (STALLING, "Stall")):
        # Not blocking: the commit of nothing, which takes what the disk takes, is then no part of the stall.
        STRATEGIES[name] = StrategyEntry(
            location=f"{here}:{kind}", formats=(FORMAT,), stages=("begun",), blocking=False
        )
    ARCHITECTURES[MODEL] = linear
    try:
        yield
    finally:
        del FRAMEWORKS[FRAMEWORK], STRATEGIES[NOTHING], STRATEGIES[STALLING], ARCHITECTURES[MODEL]
