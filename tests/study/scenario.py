"""A framework that has joined the other ranks, a network that it has built, and batches that are the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod

import numpy as np

from ckptbench.checkpointing.levels import Levels
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.frameworks.contract import AdamW, Arrays, Framework, Sgd, TrainSpec
from ckptbench.inputs.datasets.dataset import Inputs
from ckptbench.matrix.levels import SHARED
from ckptbench.matrix.networks.layers import (
    AveragePoolTo,
    Branches,
    Dense,
    Dropout,
    Flatten,
    Layer,
    Network,
    Residual,
    Shape,
)
from ckptbench.matrix.networks.models import READ_TOKENS, linear
from ckptbench.matrix.networks.models import network_of as network_named
from ckptbench.matrix.networks.transformers import gpt
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import FRAMEWORKS, STRATEGIES, Precision, load
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.identity import Identity
from ckptbench.run.recorder import Recorder

IMAGE, CLASSES = (32, 32, 3), 10
TINY, TOKENS = (4, 3, 2), (12,)
IMAGES: dict[str, Shape] = {
    "nt3": (59, 3, 2),
    "linear": TINY,
    **dict.fromkeys(("gpt_tiny", *READ_TOKENS), TOKENS),
}
"""Models with images of their own. NT3's last pool leaves out one of these rows; height, width and channels differ, so
that no wrong order of them fits."""
WITHOUT_DROPOUT = "_without_dropout"
"""Ends the name of a model from which dropout, whose random draws would part the frameworks, is taken out."""


def image_of(model: str) -> Shape:
    return IMAGES.get(model.removesuffix(WITHOUT_DROPOUT), IMAGE)


VOCABULARY = 4000
"""So many that a second copy of this embedding would show in the size of a file. Batches have CLASSES of them."""
WIDE, NARROW = 4096, 256
"""Outputs of dense layers, in AlexNet and VGG-16 and here: 118 of the 134 million parameters of VGG-16 would be copied for long."""
INCEPTION_OUTPUTS = 480


def narrow(layers: Iterable[Layer]) -> Iterator[Layer]:
    for layer in layers:
        if isinstance(layer, Dense):
            sizes = {"inputs": layer.inputs, "outputs": layer.outputs}
            yield replace(layer, **{n: NARROW if s == WIDE else s for n, s in sizes.items()})
        else:
            yield layer


def inception() -> Network:
    """The first two modules of GoogLeNet, and what comes before them."""
    layers = network_named("googlenet", IMAGE, CLASSES).layers
    _, second, *_ = (n for n, layer in enumerate(layers) if isinstance(layer, Branches))
    head = Dense(name="head", inputs=INCEPTION_OUTPUTS, outputs=CLASSES)
    return Network((*layers[: second + 1], AveragePoolTo(1), Flatten(), head))


OF_TESTS = {
    "gpt_tiny": gpt(vocabulary=VOCABULARY, most=16, width=32, layers=2, heads=4),
    "linear": linear(TINY, CLASSES),
    "inception": inception(),
    **{name: Network(tuple(narrow(network_named(name, IMAGE, CLASSES).layers))) for name in ("alexnet", "vgg16")},
}  # fmt: skip


def network_of(model: str) -> Network:
    if model in OF_TESTS:
        return OF_TESTS[model]
    network = network_named(model.removesuffix(WITHOUT_DROPOUT), image_of(model), CLASSES)
    if not model.endswith(WITHOUT_DROPOUT):
        return network
    return Network(tuple(_without_dropout(network.layers)))


def _without_dropout(layers: Iterable[Layer]) -> Iterable[Layer]:
    for layer in layers:
        if isinstance(layer, Residual):
            yield replace(layer, body=tuple(_without_dropout(layer.body)))
        elif not isinstance(layer, Dropout):
            yield layer


def batch(step: int, size: int, image: Shape = IMAGE) -> tuple[Inputs, np.ndarray]:
    """The samples of one step of all ranks, the same for every framework and world size."""
    random = np.random.default_rng((7, step))
    if len(image) == 1:
        tokens = random.integers(0, CLASSES, (size, image[0] + 1))
        return tokens[:, :-1].copy(), tokens[:, 1:].copy()
    images = random.standard_normal((size, *image), np.float32)
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


BY = "strategies/"
"""Before the name of a strategy where it could be that of a format: what the strategy has written."""


def strategies_of(framework: str) -> list[str]:
    """The strategies with files of their own. The others write one of the framework's formats."""
    return [
        name
        for name, entry in STRATEGIES.items()
        if entry.formats is not None and entry.serves(framework)
    ]


def levels_with(store: CheckpointStore) -> Levels:
    """The shared level alone."""
    levels = Levels({SHARED: store.folder}, keep=1)
    levels.shared = store
    return levels


def open_strategy(
    spec: PluginSpec,
    framework: Framework,
    world: RankContext,
    *,
    format: str,
    store: CheckpointStore,
) -> CheckpointManager:
    """A strategy as the training loop opens it. Its trace lies beside the store's folder."""
    return CheckpointManager(
        spec,
        training_state=framework,
        barrier=framework.barrier,
        world=world,
        format=format,
        identity=Identity(run_id="", cell={}, training={}, dataset_sha256="", lock_sha256=""),
        levels=levels_with(store),
        recorder=Recorder(store.folder.with_name(f"{store.folder.name}-{world.rank}.jsonl")),
        on_stage=lambda stage: None,
    )


_joined: dict[tuple[object, ...], Framework] = {}
"""The framework of this process, by how it has joined: a process joins once."""


def _join(framework: str, world: RankContext, *, seed: int, deterministic: bool) -> Framework:
    """Scenarios that one process runs one after another share its framework, whose random generators go on."""
    how = (framework, seed, deterministic)
    if how not in _joined:
        assert not _joined, "a process joins once: give its scenarios one seed and one mode"
        found = load(FRAMEWORKS[framework].location)
        assert found.is_sharded == FRAMEWORKS[framework].shards
        _joined[how] = found.join(world, seed=seed, deterministic=deterministic)
    return _joined[how]


class Scenario:
    """A framework that has joined and built, and its slice of the batches."""

    def __init__(
        self,
        framework: str,
        world: RankContext,
        model: str,
        *,
        seed: int = 5,
        deterministic: bool = False,
        weights: Arrays | None = None,
        joined: Callable[[Framework], None] = lambda framework: None,
        precision: Precision = "fp32",
        adamw: bool = False,
        accumulation: int = 1,
        **settings: float,
    ) -> None:
        """`joined` is called between the framework's `join` and its `build`."""
        self.world = world
        self.model = model
        self.framework = _join(framework, world, seed=seed, deterministic=deterministic)
        usual = {"learning_rate": 0.01} if adamw else {"learning_rate": 0.05, "momentum": 0.9}
        chosen = {"weight_decay": 0.0, **usual, **settings}
        self._optimizer = AdamW(**chosen) if adamw else Sgd(**chosen)
        self._precision, self._accumulation = precision, accumulation
        self._weights = weights
        joined(self.framework)
        self.build()

    def build(self, model: str | None = None) -> None:
        """Anew, as a new process would; `model` is another one."""
        self.model = model or self.model
        self.network = network_of(self.model)
        weights = self._weights or varied_weights(self.network)
        self.framework.build(
            TrainSpec(self.network, weights, self._optimizer, self._precision, self._accumulation)
        )

    def predict(self, size: int) -> np.ndarray:
        """The logits of the first `size` samples of step 0."""
        return self.framework.predict(batch(0, 8, image_of(self.model))[0][:size])

    def train(self, first: int, last: int, size: int) -> list[float]:
        """Steps `first` to `last` - 1, each on this rank's slice of `size` samples."""
        losses = []
        for step in range(first, last):
            images, labels = batch(step, size, image_of(self.model))
            own = slice(
                self.world.rank * size // self.world.world_size,
                (self.world.rank + 1) * size // self.world.world_size,
            )
            losses.append(self.framework.step(images[own], labels[own]))
        return losses
