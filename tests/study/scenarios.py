"""What a framework is asked to do in its own environment; run by `ranks.run_scenario` as one process a rank."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import malice
import numpy as np

from ckptbench.architectures import ARCHITECTURES, Network
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.frameworks.base import Arrays, Framework, Place, Sgd
from ckptbench.frameworks.determinism import LIBRARIES
from ckptbench.place import LOGS, read_seat, take_place
from ckptbench.rank import log_to

IMAGE, CLASSES = (32, 32, 3), 10


def batch(step: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples of one step of all ranks, the same for every framework and world size."""
    random = np.random.default_rng((7, step))
    images = random.standard_normal((size, *IMAGE), np.float32)
    return images, random.integers(0, CLASSES, size)


def varied_weights(network: Network) -> Arrays:
    """Initial weights with every scale, shift and bias different from its usual constant."""
    random = np.random.default_rng(3)
    weights = dict(network.initial_weights(1))
    for name, array in weights.items():
        if not name.endswith(".kernel"):
            center = 1 if name.endswith(".scale") else 0
            weights[name] = (center + 0.1 * random.standard_normal(array.shape)).astype(np.float32)
    return weights


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
        self.network = ARCHITECTURES[model](IMAGE, CLASSES)
        self.framework: Framework = (
            FRAMEWORKS[framework].load().join(place, seed=seed, deterministic=deterministic)
        )
        settings = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.0, **sgd}
        self.framework.build(
            self.network, weights or varied_weights(self.network), Sgd(**settings), 8
        )

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


def forward(framework: str, place: Place, folder: Path, *, model: str, **options: Any) -> Arrays:
    """Logits and parameter counts of a freshly built network."""
    scenario = Scenario(framework, place, model, **options)
    tensors = scenario.framework.tensors()
    count = sum(tensors[f"model/{name}"].size for name in scenario.network.parameters())
    return {
        "logits": scenario.framework.predict(batch(0, 8)[0]),
        "one": scenario.framework.predict(batch(0, 8)[0][:1]),
        "parameters": np.asarray(count),
        "names": np.asarray(sorted(tensors)),
        "held": np.asarray(sorted(scenario.framework.held())),
    }


def train(
    framework: str, place: Place, folder: Path, *, model: str, size: int, steps: int, **options: Any
) -> Arrays:
    """All tensors after some steps on global batches of `size` samples, and this rank's losses."""
    scenario = Scenario(framework, place, model, **options)
    losses = scenario.train(0, steps, size)
    return {**scenario.framework.tensors(), "losses": np.asarray(losses)}


def save(
    framework: str, place: Place, folder: Path, *, model: str, format: str, **options: Any
) -> Arrays:
    """Train three steps, write a checkpoint, train three more."""
    scenario = Scenario(framework, place, model, **options)
    scenario.train(0, 3, 8 * place.world_size)
    state = scenario.framework.rank_state()
    np.savez(folder / f"state-{place.rank}.npz", **state)
    if place.rank == 0:
        chosen = scenario.framework.formats[format]
        chosen.save(scenario.framework, folder / chosen.filename)
    scenario.framework.barrier()
    scenario.train(3, 6, 8 * place.world_size)
    return _everything(scenario)


def resume(
    framework: str, place: Place, folder: Path, *, model: str, format: str, **options: Any
) -> Arrays:
    """Read that checkpoint in a new process and train the last three steps."""
    scenario = Scenario(framework, place, model, **options)
    chosen = scenario.framework.formats[format]
    chosen.load(scenario.framework, folder.parent / "save" / chosen.filename)
    with np.load(folder.parent / "save" / f"state-{place.rank}.npz", allow_pickle=False) as state:
        scenario.framework.load_rank_state({name: state[name] for name in state.files})
    scenario.train(3, 6, 8 * place.world_size)
    return _everything(scenario)


def forget(
    framework: str, place: Place, folder: Path, *, part: str, others: list[str] | None = None
) -> Arrays:
    """The tensors `before` a part of the state is forgotten, and after each of two steps that follow.

    The framework must have none of the parts `others` to forget.
    """
    scenario = Scenario(framework, place, "plain_cnn")
    size = 8 * place.world_size
    scenario.train(0, 3, size)
    moments = {"before": scenario.framework.tensors()}
    for other in others or []:
        _refuse(scenario.framework, other)
    scenario.framework.forget(part)
    for step, moment in ((3, "first"), (4, "second")):
        scenario.train(step, step + 1, size)
        moments[moment] = scenario.framework.tensors()
    return {f"{moment}/{name}": a for moment, found in moments.items() for name, a in found.items()}


def _refuse(framework: Framework, part: str) -> None:
    words = "nothing was refused"
    try:
        framework.forget(part)
    except ValueError as error:
        words = str(error)
    assert part in words, words


def begin_there(framework: str, place: Place, folder: Path) -> Arrays:
    """One step of a new process from the weights at which `forget` forgot, with slots that are zero."""
    with np.load(folder.parent / "forget" / f"found-{place.rank}.npz", allow_pickle=False) as found:
        before = "before/model/"
        weights = {name.removeprefix(before): found[name] for name in found if before in name}
    scenario = Scenario(framework, place, "plain_cnn", weights=weights)
    scenario.train(3, 4, 8 * place.world_size)
    return scenario.framework.tensors()


def settings(framework: str, place: Place, folder: Path, *, deterministic: bool) -> Arrays:
    """Which settings of deterministic mode are on in this rank, after a step."""
    scenario = Scenario(framework, place, "small_cnn", deterministic=deterministic)
    scenario.train(0, 1, 8)
    on = {name: os.environ.get(name) == value for name, value in LIBRARIES.items()}
    for module, flags in (
        ("torch", _torch_flags),
        ("tensorflow", _tensorflow_flags),
        ("chainer", _chainer_flags),
    ):
        if module in sys.modules:
            on |= flags(sys.modules[module])
    return {name: np.asarray(flag) for name, flag in on.items()}


def _torch_flags(torch: Any) -> dict[str, bool]:
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
    }


def _tensorflow_flags(tensorflow: Any) -> dict[str, bool]:
    from tensorflow.python.framework import config  # what enables it is public, what tells is not

    return {"op_determinism": config.is_op_determinism_enabled()}


def _chainer_flags(chainer: Any) -> dict[str, bool]:
    names = ("cudnn_deterministic", "warn_nondeterministic")
    return {name: getattr(chainer.config, name) for name in names}


def load_malicious(framework: str, place: Place, folder: Path, *, format: str) -> Arrays:
    """What became of loading each malicious version of a checkpoint; see `malice.py`."""
    scenario = Scenario(framework, place, "small_cnn")
    return malice.outcomes(scenario.framework, place, format, folder)


def load_half(framework: str, place: Place, folder: Path, *, format: str) -> Arrays:
    """What became of loading a checkpoint that lacks the optimizer's state."""
    scenario = Scenario(framework, place, "small_cnn")
    return {"load": np.asarray(malice.load_half(scenario.framework, format, folder))}


def _everything(scenario: Scenario) -> Arrays:
    state = {f"rank_state/{name}": a for name, a in scenario.framework.rank_state().items()}
    logits = scenario.framework.predict(batch(0, 8)[0])
    return {**scenario.framework.tensors(), **state, "logits": logits}


SCENARIOS: dict[str, Callable[..., Arrays]] = {
    "forward": forward,
    "train": train,
    "save": save,
    "resume": resume,
    "forget": forget,
    "begin_there": begin_there,
    "settings": settings,
    "load_malicious": load_malicious,
    "load_half": load_half,
}


def main(scenarios: dict[str, Callable[..., Arrays]]) -> None:
    framework, scenario, folder, options = sys.argv[1:]
    log_to(Path(os.environ[LOGS]) / f"rank-{read_seat()[0].rank}.log")
    place, link = take_place(accelerator="cpu")
    found = scenarios[scenario](framework, place, Path(folder), **json.loads(options))
    np.savez(Path(folder) / f"found-{place.rank}.npz", **found)
    link.close()


if __name__ == "__main__":
    main(SCENARIOS)
