"""The size of a rank's state, and the format of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from ckptbench.common.errors import CkptbenchError
from ckptbench.frameworks.contract import SECOND_MOMENT, Arrays, Framework
from ckptbench.matrix.networks.layers import Network
from ckptbench.matrix.registry import FRAMEWORKS, NO_FORMAT
from ckptbench.run.events import State
from ckptbench.run.plan import Plan


def state_of(network: Network, framework: Framework) -> State:
    """The number of bytes that a checkpoint must hold, as an event of the trace. Each tensor counts once.

    Raises CkptbenchError where the framework built another network than `network`.
    """
    tensors = framework.state_dict()
    described = {
        f"model/{name}": shape
        for name, shape in {**network.parameters(), **network.buffers()}.items()
    }
    built = {name: array.shape for name, array in tensors.items() if name.startswith("model/")}
    if built != described:
        different = sorted(set(built.items()) ^ set(described.items()))
        raise CkptbenchError(f"{type(framework).__name__} built another network: {different[:4]}")
    slots = [name for name in tensors if name.startswith("optimizer/")]
    second = [name for name in slots if name.endswith(SECOND_MOMENT)]
    return State(
        parameters=network.parameter_count,
        model=_bytes(tensors, (f"model/{name}" for name in network.parameters())),
        optimizer=_bytes(tensors, slots),
        second_moments=_bytes(tensors, second),
        # With the running statistics, which every rank has of its own.
        rest=_bytes(own := framework.local_state(), own),
    )


def _bytes(arrays: Arrays, names: Iterable[str]) -> int:
    return sum(arrays[name].nbytes for name in names)


def checkpoint_format(plan: Plan) -> str:
    """The format of the run's checkpoints. A baseline needs one too: it writes a checkpoint when it is told to stop."""
    if plan.cell.format == NO_FORMAT:
        return FRAMEWORKS[plan.cell.framework].formats[0]
    return plan.cell.format
