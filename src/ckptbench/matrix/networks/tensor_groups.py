"""The group of the state to which a tensor belongs, found from its name.

`frameworks.contract.Framework.state_dict` and `Framework.local_state` define the names.
"""

from __future__ import annotations

from ckptbench.common.errors import CkptbenchError

GROUPS = ("weights", "statistics", "momentum", "counters", "random", "dropout", "position")
"""In the order in which texts list them. A group that a cell can omit has the same name in `Cell.omit`."""

PARAMETERS = frozenset({"kernel", "bias", "scale", "shift"})
STATISTICS = frozenset({"mean", "variance"})
"""PARAMETERS and STATISTICS: last parts of the tensor names in `matrix.networks.layers`."""
MOMENTS = PARAMETERS | {"second_moment"}
"""The same of the optimizer's slots that are no counters: see `frameworks.contract.Framework.state_dict`."""
LOCAL_STATE = {"random": "random", "seed": "dropout", "position": "position"}
"""Groups by the first part of the tensor's name."""


def group_of(tensor: str) -> str:
    """The member of GROUPS for a tensor's name. Raises CkptbenchError for a name that fits no group."""
    kind, _, name = tensor.partition("/")
    last = name.rpartition(".")[2]
    match kind:
        case "model" if last in PARAMETERS:
            return "weights"
        case "model" if last in STATISTICS:
            return "statistics"
        case "optimizer":
            return "momentum" if last in MOMENTS else "counters"
        case "buffer":
            return "counters" if "num_batches" in name else "statistics"
        case _ if kind in LOCAL_STATE:
            return LOCAL_STATE[kind]
    raise CkptbenchError(
        f'the name "{tensor}" does not say to which part of the state the tensor belongs: see '
        "`Framework.state_dict` and `Framework.local_state` for the names"
    )
