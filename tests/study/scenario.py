"""A framework that has joined the other ranks, a network that it has built, and batches that are the same everywhere."""

from __future__ import annotations

from math import prod

import numpy as np

from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.frameworks.contract import Arrays, Framework, Sgd
from ckptbench.frameworks.loading import load_framework
from ckptbench.matrix.catalogue import STRATEGIES
from ckptbench.matrix.variant import Variant
from ckptbench.networks.layers import Dropout, Network
from ckptbench.networks.models import ARCHITECTURES
from ckptbench.runs.identity import Identity
from ckptbench.runs.recorder import Recorder
from ckptbench.strategies.clocked import Clocked
from ckptbench.world.seats import Place

IMAGE, CLASSES = (32, 32, 3), 10
WITHOUT_DROPOUT = "small_cnn_without_dropout"
"""Batch norm, and no random draw that would part the frameworks."""


def network_of(model: str) -> Network:
    if model != WITHOUT_DROPOUT:
        return ARCHITECTURES[model](IMAGE, CLASSES)
    layers = ARCHITECTURES["small_cnn"](IMAGE, CLASSES).layers
    return Network(tuple(layer for layer in layers if not isinstance(layer, Dropout)))


def batch(step: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples of one step of all ranks, the same for every framework and world size."""
    random = np.random.default_rng((7, step))
    images = random.standard_normal((size, *IMAGE), np.float32)
    return images, random.integers(0, CLASSES, size)


DRAWN = 1_000_003
"""So many values are drawn for a kernel and repeated. The number is prime: no two rows of a kernel are alike."""


def varied_weights(network: Network) -> Arrays:
    """Random weights with every scale, shift and bias different from its usual constant."""
    random = np.random.default_rng(3)
    weights: Arrays = {}
    for name, shape in network.parameters().items():
        drawn = random.standard_normal(min(prod(shape), DRAWN), np.float32)
        if name.endswith(".kernel"):
            drawn *= np.float32(np.sqrt(2 / prod(shape[1:])))  # He-normal, as the study's own
        else:
            drawn = np.float32(name.endswith(".scale")) + np.float32(0.1) * drawn
        weights[name] = np.resize(drawn, shape)
    return weights


def strategies_of(framework: str) -> list[str]:
    """The strategies with files of their own. The others write one of the framework's formats."""
    return [
        name
        for name, entry in STRATEGIES.items()
        if entry.formats is not None and entry.serves(framework)
    ]


def open_strategy(
    variant: Variant, framework: Framework, place: Place, *, format: str, store: CheckpointStore
) -> Clocked:
    """A strategy as the training loop opens it. Its trace lies beside the store's folder."""
    return Clocked.open(
        variant,
        subject=framework,
        place=place,
        format=format,
        identity=Identity(run_id="", cell={}, training={}, dataset_sha256="", lock_sha256=""),
        store=store,
        recorder=Recorder(store.folder.with_name(f"{store.folder.name}-{place.rank}.jsonl")),
        reach=lambda stage: None,
    )


_joined: dict[tuple[object, ...], Framework] = {}
"""The framework of this process, by how it has joined: a process joins once."""


def _join(framework: str, place: Place, *, seed: int, deterministic: bool) -> Framework:
    """Scenarios that one process runs one after another share its framework, whose random generators go on."""
    how = (framework, seed, deterministic)
    if how not in _joined:
        assert not _joined, "a process joins once: give its scenarios one seed and one mode"
        _joined[how] = load_framework(framework).join(place, seed=seed, deterministic=deterministic)
    return _joined[how]


class Scenario:
    """A framework that has joined and built, and its share of the batches."""

    def __init__(
        self,
        framework: str,
        place: Place,
        model: str,
        *,
        seed: int = 5,
        deterministic: bool = False,
        weights: Arrays | None = None,
        **sgd: float,
    ) -> None:
        self.place = place
        self.network = network_of(model)
        self.framework = _join(framework, place, seed=seed, deterministic=deterministic)
        self._settings = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.0, **sgd}
        self._weights = weights
        self.build()

    def build(self, model: str | None = None) -> None:
        """Anew, as a new process would; `model` is another one."""
        if model is not None:
            self.network = network_of(model)
        weights = self._weights or varied_weights(self.network)
        self.framework.build(self.network, weights, Sgd(**self._settings), 8)

    def train(self, first: int, last: int, size: int) -> list[float]:
        """Steps `first` to `last` - 1, each on this rank's share of `size` samples."""
        losses = []
        for step in range(first, last):
            images, labels = batch(step, size)
            share = slice(
                self.place.rank * size // self.place.world_size,
                (self.place.rank + 1) * size // self.place.world_size,
            )
            losses.append(self.framework.step(images[share], labels[share]))
        return losses
