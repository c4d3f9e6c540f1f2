"""The size of a rank's state, and the format of its checkpoints."""

from __future__ import annotations

from ckptbench.common.errors import CkptbenchError
from ckptbench.frameworks.contract import Framework
from ckptbench.matrix.networks.layers import Network
from ckptbench.matrix.registry import FRAMEWORKS, NO_FORMAT
from ckptbench.runs.events import State
from ckptbench.runs.plan import Plan


def state_of(network: Network, framework: Framework) -> State:
    """The number of bytes that a checkpoint must hold, as an event of the trace.

    Raises CkptbenchError where the framework built another network than `network`.
    """
    tensors = framework.held()
    described = {
        f"model/{name}": shape
        for name, shape in {**network.parameters(), **network.buffers()}.items()
    }
    built = {name: array.shape for name, array in tensors.items() if name.startswith("model/")}
    if built != described:
        different = sorted(set(built.items()) ^ set(described.items()))
        raise CkptbenchError(f"{type(framework).__name__} built another network: {different[:4]}")
    own = framework.rank_state()
    model = sum(tensors[name].nbytes for name in built)
    return State(
        parameters=network.parameter_count,
        model=model,
        optimizer=sum(array.nbytes for array in tensors.values()) - model,
        rest=sum(array.nbytes for array in own.values()),
    )


def checkpoint_format(plan: Plan) -> str:
    """The format of the run's checkpoints. A baseline needs one too: it writes a checkpoint when it is told to stop."""
    if plan.cell.format == NO_FORMAT:
        return FRAMEWORKS[plan.cell.framework].formats[0]
    return plan.cell.format
