"""The framework `numpy`: softmax regression in NumPy on one rank. The audit and tests train it, as it needs no environment of its own."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.frameworks.contract import Arrays, Format, Framework, Sgd, TensorHandle, TrainSpec
from ckptbench.frameworks.random_state import load_random_state, random_state, seed_all
from ckptbench.inputs.datasets.dataset import Inputs
from ckptbench.run.control.ranks import RankContext


class NumpyFramework(Framework):
    """Adds noise from the global generator to gradients, so that a resume needs the random state."""

    formats: ClassVar[dict[str, Format[NumpyFramework]]]
    weights: dict[str, NDArray[np.float32]]
    momenta: dict[str, NDArray[np.float32]]

    @classmethod
    def join(cls, world: RankContext, *, seed: int, deterministic: bool) -> Self:
        seed_all(seed + world.rank)
        return cls()

    def build(self, spec: TrainSpec) -> None:
        assert isinstance(spec.optimizer, Sgd)  # all that its registry entry offers
        self.weights = {name: array.astype(np.float32) for name, array in spec.weights.items()}
        self.momenta = {name: np.zeros_like(array) for name, array in self.weights.items()}
        self._sgd = spec.optimizer

    def step(self, inputs: Inputs, labels: NDArray[np.int64]) -> float:
        flat = _flat(inputs)
        logits = self.predict(inputs)
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(chances[rows, labels]).mean())
        chances[rows, labels] -= 1
        error = (chances / len(labels)).astype(np.float32)
        noise = np.float32(1e-3) * np.random.standard_normal(error.shape[1]).astype(np.float32)
        gradients = {"head.kernel": error.T @ flat, "head.bias": error.sum(0) + noise}
        if self.before_update is not None:
            self.before_update()
        self._update(gradients)
        return loss

    def _update(self, gradients: dict[str, NDArray[np.float32]]) -> None:
        sgd = self._sgd
        for name, gradient in gradients.items():
            decayed = gradient + np.float32(sgd.weight_decay) * self.weights[name]
            self.momenta[name] = np.float32(sgd.momentum) * self.momenta[name] + decayed
            self.weights[name] -= np.float32(sgd.learning_rate) * self.momenta[name]

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = (
            _flat(inputs) @ self.weights["head.kernel"].T + self.weights["head.bias"]
        )
        return logits

    def barrier(self) -> None:
        """There is one rank."""

    def abort(self) -> None:
        """There is one rank."""

    def state_dict(self) -> Arrays:
        model = {f"model/{name}": array.copy() for name, array in self.weights.items()}
        return {**model, **{f"optimizer/{name}": a.copy() for name, a in self.momenta.items()}}

    def handles(self) -> list[TensorHandle]:
        return [
            self._handle(f"{kind}/{name}", arrays, name)
            for kind, arrays in (("model", self.weights), ("optimizer", self.momenta))
            for name in arrays
        ]

    def _handle(
        self, full_name: str, arrays: dict[str, NDArray[np.float32]], name: str
    ) -> TensorHandle:
        def write(array: NDArray[np.generic]) -> None:
            arrays[name][...] = array

        return TensorHandle(
            name=full_name,
            shape=arrays[name].shape,
            dtype=arrays[name].dtype,
            read=lambda: arrays[name],
            write=write,
            in_place=True,
        )

    def local_state(self) -> Arrays:
        return random_state()

    def load_local_state(self, state: Arrays) -> None:
        load_random_state(state)

    def device(self) -> str:
        return "cpu"

    def close(self) -> None:
        """Nothing is open."""


def _flat(images: Inputs) -> NDArray[np.float32]:
    """Channels first, as Flatten says."""
    return images.astype(np.float32).transpose(0, 3, 1, 2).reshape(len(images), -1)


def _save(framework: NumpyFramework, target: Path | BinaryIO) -> None:
    np.savez(target, **framework.state_dict())  # type: ignore[arg-type]


def _load(framework: NumpyFramework, path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        for name in framework.weights:
            framework.weights[name] = archive[f"model/{name}"]
            framework.momenta[name] = archive[f"optimizer/{name}"]


NumpyFramework.formats = {"npz": Format("model.npz", _save, _load)}
