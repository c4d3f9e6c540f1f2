"""What engines share: the state of a PyTorch rank as nested dictionaries of its tensors, and a process group of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ckptbench.checkpointing.contract import TrainingState
from ckptbench.checkpointing.state_files import load_own, own_name, save_own
from ckptbench.checkpointing.version import Version
from ckptbench.common.objects import Place
from ckptbench.frameworks.contract import Arrays, reading
from ckptbench.run.events import File

_BUFFER = "buffer/"
"""Beginning of the names of running statistics in the state of one rank."""


def state_of(objects: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Parameters, the optimizer's slots by parameter, and the running statistics of `rank` under its number.

    Ranks differ in their running statistics. Under a common name an engine would take each of them from whichever rank
    it likes. All values are tensors, so that no engine needs to pickle one.
    """
    return {
        **updated_state(objects),
        "statistics": {str(rank): dict(objects["module"].named_buffers())},
    }


def updated_state(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, and the optimizer's slots by parameter: what an update changes, and a forward pass does not."""
    module, optimizer = objects["module"], objects["optimizer"]
    names = {parameter: name for name, parameter in module.named_parameters()}
    return {
        "model": {name: parameter.detach() for parameter, name in names.items()},
        "optimizer": {names[each]: dict(slots) for each, slots in optimizer.state.items()},
    }


def flat(state: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested dictionaries, each with its names, joined by slashes."""
    for name, value in state.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def without_statistics(state: Arrays) -> Arrays:
    """The state of one rank that no engine saves: the states of random generators."""
    return {name: array for name, array in state.items() if not name.startswith(_BUFFER)}


def save_rest(staging: Place, rank: int, state: Arrays) -> File:
    """Write what no engine saves to the rank's own file."""
    return save_own(staging, rank, without_statistics(state))


def load_rest(version: Version, folder: Path, training_state: TrainingState, rank: int) -> None:
    """Restore what `save_rest` wrote. Call it when the engine has loaded the statistics.

    A rank with a number that the version does not have draws on from its own seed.
    """
    if rank >= version.world_size:
        return
    own = load_own(folder, rank)
    with reading(folder / own_name(rank)):
        training_state.load_local_state({**training_state.local_state(), **own})


def statistics_rank(version: Version, rank: int) -> int:
    """The rank whose running statistics `rank` loads: rank 0's, if the version has none of its own."""
    return rank if rank < version.world_size else 0


class OwnGroup:
    """A group of all ranks for the saves of one engine: gloo mixes up messages of saves and of training in one group."""

    def __init__(self, world_size: int) -> None:
        """Every rank calls it. A rank that trains alone has met nobody, and some engines need a group even then."""
        self._made: list[Any] = []
        if world_size == 1 and not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            self._made.append(dist.group.WORLD)
        self.group = dist.new_group(backend="gloo")
        self._made.insert(0, self.group)

    def close(self) -> None:
        for group in self._made:
            dist.destroy_process_group(group)
