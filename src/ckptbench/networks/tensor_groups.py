"""Which part of a run's state a tensor belongs to, by its name: see `Framework.tensors` and `rank_state`."""

from __future__ import annotations

from ckptbench.errors import RunFolderError

GROUPS = ("weights", "statistics", "momentum", "counters", "random", "dropout", "position")
"""In the order in which texts name them. Those that a cell can omit have the name that `omit` has for them."""

PARAMETERS = frozenset({"kernel", "bias", "scale", "shift"})
STATISTICS = frozenset({"mean", "variance"})
"""How names of tensors end in `architectures.Network`."""
RANK_STATE = {"random": "random", "seed": "dropout", "position": "position"}


def group_of(tensor: str) -> str:
    """Raises RunFolderError for a name that is of no group."""
    kind, _, name = tensor.partition("/")
    last = name.rpartition(".")[2]
    match kind:
        case "model" if last in PARAMETERS:
            return "weights"
        case "model" if last in STATISTICS:
            return "statistics"
        case "optimizer":
            return "momentum" if last in PARAMETERS else "counters"
        case "buffer":
            return "counters" if "num_batches" in name else "statistics"
        case _ if kind in RANK_STATE:
            return RANK_STATE[kind]
    raise RunFolderError(
        f'tensor "{tensor}" is of no known group: name its group in {__name__.replace(".", "/")}.py'
    )
