"""What `test_consistency.py` asks of every strategy of a framework; run by `ranks.run_scenario` as one process a rank."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scenario import Scenario, open_strategy
from scenarios import main

from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.frameworks.contract import Arrays, Framework
from ckptbench.frameworks.state import Tensor
from ckptbench.matrix.catalogue import STRATEGIES, formats_of
from ckptbench.matrix.variant import Variant
from ckptbench.proof.digest import digests
from ckptbench.runs.position import Position
from ckptbench.strategies.clocked import Clocked
from ckptbench.world.seats import Place

SAVES = 6
"""Of each strategy, one a step. The first ones often go through other code than those that follow."""
UNAWAITED = "unawaited"
"""Stands for a strategy of which no update waits for the capture."""
PATIENCE_S = 5.0
Digests = dict[str, str]


class Dawdling:
    """Has the threads of a strategy read the tensors as late as the strategy lets them, however fast the machine is.

    A thread beside that of training reads when an update waits for it, or else when the step is over.
    """

    def __init__(self, framework: Framework) -> None:
        self._due = threading.Event()
        state = framework.state
        framework.state = lambda: [self._late(tensor) for tensor in state()]  # type: ignore[method-assign]

    def begin(self) -> None:
        self._due.clear()

    def end(self) -> None:
        self._due.set()

    def waiting(self, hook: Callable[[], None]) -> Callable[[], None]:
        """The hook of a strategy, which says that training waits."""

        def wait() -> None:
            self._due.set()
            hook()

        return wait

    def _late(self, tensor: Tensor) -> Tensor:
        def read() -> NDArray[np.generic]:
            if threading.current_thread() is not threading.main_thread():
                self._due.wait(PATIENCE_S)
                self._due.set()
            return tensor.read()

        return dataclasses.replace(tensor, read=read)


def consistency(framework: str, place: Place, folder: Path) -> Arrays:
    """By strategy, format and step of a version: the names of the tensors that it has otherwise than they were at the step.

    Parameters, slots, running statistics and random states. Every step is followed by a save and the save by a step.
    """
    scenario = Scenario(framework, place, "small_cnn")
    dawdling = Dawdling(scenario.framework)
    found: Arrays = {}
    for name, entry in STRATEGIES.items():
        for format in formats_of(framework, name) if entry.serves(framework) else ():
            strategy = _open(scenario, name, format, folder / f"{name}-{format}")
            found |= _in(f"{name}/{format}", _torn(scenario, dawdling, strategy))
    strategy = _open(scenario, "deepfreeze", "safetensors", folder / UNAWAITED)
    strategy._strategy.before_update = lambda: None  # type: ignore[method-assign]
    dawdling.waiting = lambda hook: hook  # type: ignore[method-assign]
    return found | _in(UNAWAITED, _torn(scenario, dawdling, strategy))


def _in(group: str, found: Arrays) -> Arrays:
    return {f"{group}/{name}": array for name, array in found.items()}


def _open(scenario: Scenario, name: str, format: str, folder: Path) -> Clocked:
    return open_strategy(
        Variant(name),
        scenario.framework,
        scenario.place,
        format=format,
        store=CheckpointStore(folder, keep=SAVES),
    )


def _torn(scenario: Scenario, dawdling: Dawdling, strategy: Clocked) -> Arrays:
    """The names by step, as the training loop saves and compares."""
    framework, size = scenario.framework, 8 * scenario.place.world_size
    hook = strategy.hook
    framework.before_update = None if hook is None else dawdling.waiting(hook)
    scenario.build()
    strategy.ready()
    then: dict[int, Digests] = {}
    scenario.train(0, 1, size)
    for step in range(1, SAVES + 1):
        then[step] = _digests(framework)
        strategy.settle()  # what still reads is of the save before
        framework.barrier()
        dawdling.begin()
        strategy.save(Position(step=step, epoch=0, step_in_epoch=step))
        scenario.train(step, step + 1, size)
        dawdling.end()
    strategy.settle()
    found: Arrays = {}
    for _, version in strategy.versions():
        strategy.load(version)
        step = version.position.step
        found[str(step)] = np.asarray(_differing(then[step], _digests(framework)), str)
    strategy.close(complete=True)
    return found


def _digests(framework: Framework) -> Digests:
    return digests({**framework.held(), **framework.rank_state()})


def _differing(first: Digests, second: Digests) -> list[str]:
    names = sorted(first.keys() | second.keys())
    return [name for name in names if first.get(name) != second.get(name)]


if __name__ == "__main__":
    main({"consistency": consistency})
