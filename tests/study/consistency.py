"""What `test_consistency.py` asks of every strategy of a framework; run by `ranks.run_scenario` as one process a rank."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scenario import Scenario, open_strategy
from scenarios import main
from selection import OWN

from ckptbench.checkpointing import staging_buffer
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.common.errors import CheckpointError
from ckptbench.frameworks.contract import Arrays, Framework, TensorHandle
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import STRATEGIES, formats_of
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.position import Position
from ckptbench.training.digest import digests

SAVES = 6
"""Of each strategy, one a step. The first ones often go through other code than those that follow."""
STRANGE = "strange"
TRACED = "traced"
COPYING = ("async", "deepfreeze")
"""Strategies that copy natively where they can."""
BY_NUMPY = " by NumPy"
UNAWAITED = "unawaited"
"""Stands for a strategy of which no update waits for the capture."""
PATIENCE_S = 5.0
Digests = dict[str, str]


def formats_tried(framework: str, strategy: str) -> Sequence[str]:
    """One, of a framework whose files are written by the code of another."""
    formats = formats_of(framework, strategy)
    return formats if framework in OWN else formats[:1]


class Dawdling:
    """Has the threads of a strategy read the tensors as late as the strategy lets them, however fast the machine is.

    A thread beside that of training reads when an update waits for it, or else when the step is over.
    """

    def __init__(self, framework: Framework) -> None:
        self.hook: Callable[[], None] = lambda: None
        """Of the strategy in use."""
        self._due = threading.Event()
        handles = framework.handles
        framework.handles = lambda: [self._late(handle) for handle in handles()]  # type: ignore[method-assign]

    def begin(self) -> None:
        self._due.clear()

    def end(self) -> None:
        self._due.set()

    def wait(self) -> None:
        """Call the hook: training waits. One function for all strategies, as TensorFlow compiles it into its step."""
        self._due.set()
        self.hook()

    def _late(self, handle: TensorHandle) -> TensorHandle:
        def read() -> NDArray[np.generic]:
            if threading.current_thread() is not threading.main_thread():
                self._due.wait(PATIENCE_S)
                self._due.set()
            return handle.read()

        return dataclasses.replace(handle, read=read)


def consistency(framework: str, world: RankContext, folder: Path) -> Arrays:
    """By strategy, format and step of a version: the names of the tensors that it has otherwise than they were at the step.

    Parameters, slots, running statistics and random states. Every step is followed by a save and the save by a step. The
    saves from the third on come after the framework has loaded a file of its own, which may put other tensors in place of
    those before; the last two of a strategy in the background after all tensors were made anew.

    Under STRANGE: what the framework says of tensors that have no place in a checkpoint. Of TensorFlow, under
    TRACED: see `_written_before_the_hook`.
    """
    scenario = Scenario(framework, world, "small_cnn")
    dawdling = Dawdling(scenario.framework)
    found: Arrays = {}
    for name, entry in STRATEGIES.items():
        for format in formats_tried(framework, name) if entry.serves(framework) else ():
            strategy = _open(scenario, name, format, folder / f"{name}-{format}")
            found |= _in(f"{name}/{format}", _torn(scenario, dawdling, strategy))
    # From here on a thread copies, as without the native copy, and an update that does not wait comes before it.
    staging_buffer.has_c_copy = lambda: False
    for name in COPYING:
        own = f"{name}{BY_NUMPY}"
        strategy = _open(scenario, name, "safetensors", folder / own)
        found |= _in(f"{own}/safetensors", _torn(scenario, dawdling, strategy))
    strategy = _open(scenario, "deepfreeze", "safetensors", folder / UNAWAITED)
    strategy._strategy.before_update = lambda: None  # type: ignore[method-assign]
    dawdling.wait = lambda: None  # type: ignore[method-assign]
    scenario.framework.before_update = None  # so that it is compiled anew
    found |= _in(UNAWAITED, _torn(scenario, dawdling, strategy))
    if "tensorflow" in sys.modules:
        found[TRACED] = np.asarray(_written_before_the_hook(scenario), str)
    return found | _in(STRANGE, _strange(scenario))


def _in(group: str, found: Arrays) -> Arrays:
    return {f"{group}/{name}": array for name, array in found.items()}


def _open(scenario: Scenario, name: str, format: str, folder: Path) -> CheckpointManager:
    return open_strategy(
        PluginSpec(name),
        scenario.framework,
        scenario.world,
        format=format,
        store=CheckpointStore(folder, keep=SAVES),
    )


def _torn(scenario: Scenario, dawdling: Dawdling, strategy: CheckpointManager) -> Arrays:
    """The names by step, as the training loop saves and compares."""
    framework, world = scenario.framework, scenario.world
    size = 8 * world.world_size
    before = framework.before_update
    if strategy.hook is not None:
        dawdling.hook = strategy.hook
    framework.before_update = strategy.hook and dawdling.wait
    if before != framework.before_update:
        scenario.build()
    strategy.ready()
    then: dict[int, Digests] = {}
    scenario.train(0, 1, size)
    for step in range(1, SAVES + 1):
        strategy.settle()  # what still reads is of the save before
        if step == SAVES - 1 and not strategy._blocking:
            scenario.build()
        if step == SAVES // 2:
            _reload(framework, world, strategy._levels.shared.folder.with_name("own"))
        then[step] = _digests(framework)
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


def _reload(framework: Framework, world: RankContext, folder: Path) -> None:
    """Load the state that the framework has."""
    own = framework.local_state()
    chosen = next(iter(framework.formats.values()))
    if world.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    framework.barrier()
    if world.rank == 0 or framework.is_sharded:
        chosen.save(framework, folder / chosen.filename)
    framework.barrier()
    chosen.load(framework, folder / chosen.filename)
    framework.load_local_state(own)
    framework.barrier()


def _written_before_the_hook(scenario: Scenario) -> list[str]:
    """Variables of `handles` that TensorFlow's compiled step may write before it has called the hook.

    The order in which it runs independent operations is chance, so the versions of one run need not show it.
    """
    framework: Any = scenario.framework
    assert framework.before_update is not None
    (step,) = framework._train._list_all_concrete_functions()
    names = {
        id(step.graph.capture(local.handle)): name
        for name, variable in framework.native_objects["variables"].items()
        for local in framework._strategy.experimental_local_results(variable)
    }
    operations = step.graph.get_operations()
    after: set[str] = set()
    for operation in operations:  # in the order of their making: causes come first
        causes = (*operation.control_inputs, *(each.op for each in operation.inputs))
        if operation.type == "EagerPyFunc" or any(cause.name in after for cause in causes):
            after.add(operation.name)
    writes = [each for each in operations if each.type.startswith(("Assign", "ResourceApply"))]
    written = {
        names[id(each.inputs[0])]: each.name in after
        for each in writes
        if id(each.inputs[0]) in names
    }
    constant = {"optimizer/learning_rate"}
    assert written.keys() == set(names.values()) - constant, "it writes all variables but this one"
    return sorted(name for name, waits in written.items() if not waits)


def _strange(scenario: Scenario) -> Arrays:
    """By what the optimizer or the network gets beside its own: the refusal of `handles`."""
    said: Arrays = {}
    framework: Any = scenario.framework
    strangers = next((each for library, each in STRANGERS.items() if library in sys.modules), {})
    for kind, change in strangers.items():
        scenario.build()
        change(framework)
        try:
            framework.handles()
            said[kind] = np.asarray("nothing was refused")
        except CheckpointError as error:
            said[kind] = np.asarray(str(error))
    return said


def _torch_slot(framework: Any) -> None:
    parameter = next(framework.module.parameters())
    framework.optimizer.state[parameter]["late"] = parameter.detach().clone()


def _torch_parameter(framework: Any) -> None:
    """In place of one that the optimizer still has."""
    head = framework.module[-1]
    head.bias = _parameter_like(head.bias)


def _torch_group(framework: Any) -> None:
    parameter = next(framework.module.parameters())
    framework.optimizer.add_param_group({"params": [_parameter_like(parameter)]})


def _parameter_like(parameter: Any) -> Any:
    from torch import nn

    return nn.Parameter(parameter.detach().clone())


def _chainer_slot(framework: Any) -> None:
    parameter = next(iter(framework.native_objects["model"].params()))
    parameter.update_rule.state["late"] = parameter.array.copy()


def _chainer_link(framework: Any) -> None:
    import chainer

    framework.native_objects["model"].add_link("late", chainer.links.Linear(2, 2))


def _keras_slot(framework: Any) -> None:
    framework.optimizer.add_variable((3,), initializer="zeros", name="late")


def _jax_slot(framework: Any) -> None:
    framework._arrays["optimizer/late"] = next(iter(framework._arrays.values()))


STRANGERS: dict[str, dict[str, Callable[[Any], None]]] = {
    "torch": {"slot": _torch_slot, "parameter": _torch_parameter, "group": _torch_group},
    "chainer": {"slot": _chainer_slot, "link": _chainer_link},
    "tensorflow": {"slot": _keras_slot},
    "ckptbench.frameworks.jax.framework": {"slot": _jax_slot},
}
"""By library, what comes after `build` and is not in `handles`."""


def _digests(framework: Framework) -> Digests:
    return digests({**framework.state_dict(), **framework.local_state()})


def _differing(first: Digests, second: Digests) -> list[str]:
    names = sorted(first.keys() | second.keys())
    return [name for name in names if first.get(name) != second.get(name)]


if __name__ == "__main__":
    main({"consistency": consistency})
