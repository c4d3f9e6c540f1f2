"""What a framework is asked to do in its own environment; run by `ranks.run_scenario` as one process a rank."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ckptbench.architectures import ARCHITECTURES, Network
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.frameworks.base import Arrays, Framework, Place, Sgd
from ckptbench.place import LOGS, read_seat, take_place
from ckptbench.train import log_to

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

    def __init__(self, framework: str, place: Place, model: str, **sgd: float) -> None:
        self.place = place
        self.network = ARCHITECTURES[model](IMAGE, CLASSES)
        self.framework: Framework = (
            FRAMEWORKS[framework].load().join(place, seed=5, deterministic=False)
        )
        settings = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.0, **sgd}
        self.framework.build(self.network, varied_weights(self.network), Sgd(**settings), 8)

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


def forward(framework: str, place: Place, folder: Path, model: str) -> Arrays:
    """Logits and parameter counts of a freshly built network."""
    scenario = Scenario(framework, place, model)
    tensors = scenario.framework.tensors()
    count = sum(tensors[f"model/{name}"].size for name in scenario.network.parameters())
    return {
        "logits": scenario.framework.predict(batch(0, 8)[0]),
        "one": scenario.framework.predict(batch(0, 8)[0][:1]),
        "parameters": np.asarray(count),
        "names": np.asarray(sorted(tensors)),
    }


def train(
    framework: str, place: Place, folder: Path, *, model: str, size: int, steps: int, **sgd: float
) -> Arrays:
    """All tensors after some steps on global batches of `size` samples, and this rank's losses."""
    scenario = Scenario(framework, place, model, **sgd)
    losses = scenario.train(0, steps, size)
    return {**scenario.framework.tensors(), "losses": np.asarray(losses)}


def save(framework: str, place: Place, folder: Path, model: str, format: str) -> Arrays:
    """Train three steps, write a checkpoint, train three more."""
    scenario = Scenario(framework, place, model)
    scenario.train(0, 3, 8 * place.world_size)
    state = scenario.framework.rank_state()
    np.savez(folder / f"state-{place.rank}.npz", **state)
    if place.rank == 0:
        chosen = scenario.framework.formats[format]
        chosen.save(scenario.framework, folder / chosen.filename)
    scenario.framework.barrier()
    scenario.train(3, 6, 8 * place.world_size)
    return _everything(scenario)


def resume(framework: str, place: Place, folder: Path, model: str, format: str) -> Arrays:
    """Read that checkpoint in a new process and train the last three steps."""
    scenario = Scenario(framework, place, model)
    chosen = scenario.framework.formats[format]
    chosen.load(scenario.framework, folder.parent / "save" / chosen.filename)
    with np.load(folder.parent / "save" / f"state-{place.rank}.npz", allow_pickle=False) as state:
        scenario.framework.load_rank_state({name: state[name] for name in state.files})
    scenario.train(3, 6, 8 * place.world_size)
    return _everything(scenario)


def _everything(scenario: Scenario) -> Arrays:
    state = {f"rank_state/{name}": a for name, a in scenario.framework.rank_state().items()}
    logits = scenario.framework.predict(batch(0, 8)[0])
    return {**scenario.framework.tensors(), **state, "logits": logits}


SCENARIOS: dict[str, Callable[..., Arrays]] = {
    "forward": forward,
    "train": train,
    "save": save,
    "resume": resume,
}


def main() -> None:
    framework, scenario, folder, options = sys.argv[1:]
    log_to(Path(os.environ[LOGS]) / f"rank-{read_seat()[0].rank}.log")
    place, link = take_place(accelerator="cpu")
    found = SCENARIOS[scenario](framework, place, Path(folder), **json.loads(options))
    np.savez(Path(folder) / f"found-{place.rank}.npz", **found)
    link.close()


if __name__ == "__main__":
    main()
