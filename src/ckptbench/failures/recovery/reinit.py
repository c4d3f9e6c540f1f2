"""The recovery `reinit`: survivors keep their processes, a new one replaces the lost rank, and all return to the newest version.

After Reinit for MPI (Georgakoudis et al. 2020). Survivors do not launch, import or read data again. When the new process has
imported its framework, all ranks form a new process group and rebuild network and optimizer. All restart if there is no
version, if the lost rank was not on the launcher's node, or if a second rank is lost during the recovery.

With `state: replica` survivors keep their state, and the new rank copies its part from a rank with the same part
(`pytorch`: any rank; `pytorch_hsdp`: the replica of its shard). If none is left, all return to the version. The failed step is
repeated, so running statistics see its batch twice.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpointing.levels import open_levels
from ckptbench.common.clock import clock
from ckptbench.common.errors import LaunchError
from ckptbench.failures.recovery.contract import Loss, Regrouped, Verdict
from ckptbench.failures.recovery.elastic import Elastic, ElasticRank
from ckptbench.frameworks.contract import Arrays, Framework, TensorHandle
from ckptbench.matrix.plugin_spec import Option
from ckptbench.matrix.registry import FRAMEWORKS
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position

log = logging.getLogger(__name__)

AGAIN_S = 0.02
"""A rank waits so long before it looks again whether all have come."""


class Reinit(Elastic):
    """The half that the launcher calls."""

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        """All ranks start again where one is lost while they meet: the others may wait for it in a library."""
        were_whole = self.is_whole(plan)
        verdict = super().after(loss, plan)
        if not were_whole and loss.ranks:
            log.info("ranks were lost before all had met again: %s", loss.how)
            return Verdict.RELAUNCH
        if verdict != Verdict.GO_ON:
            return verdict
        has_version = any(store.steps() for store in open_levels(plan).stores.values())
        if not has_version and not self._is_held(loss, plan):
            log.info(
                "no rank and no version has the state of ranks %s: all start from the beginning",
                list(loss.ranks),
            )
            return Verdict.RELAUNCH
        self.replaced[plan.attempt] += 1
        return Verdict.REPLACE

    def _is_held(self, loss: Loss, plan: Plan) -> bool:
        """Whether other ranks hold every part of the state that the lost ones held."""
        parts = FRAMEWORKS[plan.cell.framework].parts(plan.cell.ranks)
        left = {rank % parts for rank in range(plan.cell.ranks) if rank not in loss.ranks}
        return self.options(plan)["state"] == "replica" and len(left) == parts


class Role(StrEnum):
    """Why a rank wants to meet the others."""

    NEW = "new"
    """It comes in place of a lost one."""
    SURVIVOR = "survivor"
    """It was there before."""
    AT_END = "at end"
    """It has nothing more to do, unless another one has."""
    LOST = "lost"


class Said(NamedTuple):
    """What a rank tells the others when they meet."""

    rank: int
    role: str
    address: str
    """`host:port`, which is free, for a rendezvous of the framework."""
    step: int | None
    """Completed steps of the whole run after which its state is. None: it has none."""


class Reconnecting(Protocol):
    """What a framework has beyond the contract."""

    parts: int
    """Model and optimizer lie in so many parts. Rank r holds part r % parts."""

    def disconnect(self) -> None: ...
    def reconnect(self, world: RankContext) -> None: ...


class ReinitRank(ElasticRank):
    """The half that every rank calls."""

    def __init__(self, world: RankContext, link: Link, options: Mapping[str, Option]) -> None:
        super().__init__(world, link, options)
        self._at_end: Exception | None = None
        """That others were not at the end when this rank was."""
        self._steps: dict[int, int] = {}
        """The step of each rank that has a state, from when all met last."""
        self._handles: Sequence[TensorHandle] = ()
        """Model and optimizer in `replica`. A step that fails may leave whole parameters in the place of FSDP2's shards."""
        if link.is_replacement:  # it has imported the framework, which is about to join the others
            self._noticed_ns = clock()
            link.join()
            self._meet(Role.NEW)

    @property
    def _from_replica(self) -> bool:
        return self.options["state"] == "replica"

    def join(self, reached: Position) -> Regrouped | None:
        return self._regrouped(self._noticed_ns, None) if self.link.is_replacement else None

    def regroup(self, error: Exception, reached: Position) -> Regrouped:
        if error is not self._at_end and not tells_of_a_loss(error):
            raise error
        noticed_ns = clock()
        log.info("a rank is lost after step %d: %s", reached.step, error)
        framework = cast(Reconnecting, self.framework)
        framework.disconnect()
        if Role.NEW not in self._meet(Role.SURVIVOR, reached.step):
            raise error
        held = Held.of(self._handles, self.framework) if self._from_replica else None
        framework.reconnect(self.world)
        return self._regrouped(noticed_ns, held)

    def _regrouped(self, noticed_ns: int, held: Held | None) -> Regrouped:
        """Called when all have the new group. `held` is what this rank held before, if it was there."""
        agreed_ns = clock()
        step, taken = None, 0
        if self._from_replica:
            parts = cast(Reconnecting, self.framework).parts
            step = whole_step(self._steps, parts)
            if step is not None:
                taken = self._take_over(step, parts, held)
        return Regrouped(
            step=step,
            ranks=tuple(range(self.world.world_size)),
            noticed_ns=noticed_ns,
            agreed_ns=agreed_ns,
            ready_ns=clock(),
            bytes=taken,
        )

    def _take_over(self, step: int, parts: int, held: Held | None) -> int:
        """Have the state after `step` on every rank: one of those that hold a part sends it to the others that should. Returns bytes that came."""
        import torch
        import torch.distributed as dist

        has_it = self._steps.get(self.world.rank) == step
        if held is not None and has_it:
            held.put(self.framework)
        taken = 0
        for part in range(parts):
            ranks = range(part, self.world.world_size, parts)
            group = dist.new_group(list(ranks))  # every rank calls it
            source = next(rank for rank in ranks if self._steps.get(rank) == step)
            if self.world.rank not in ranks or all(self._steps.get(each) == step for each in ranks):
                continue
            sent = Held.of(self.framework.handles(), self.framework)
            for array in sent.arrays():
                dist.broadcast(torch.from_numpy(array), source, group)
            if not has_it:
                sent.put(self.framework)
                taken = sum(array.nbytes for array in sent.arrays())
        return taken

    def _meet(self, role: Role, step: int | None = None) -> set[str]:
        """Return the roles of all ranks when all have come that there are to be, and learn at which addresses they are now.

        One that is at the end hears at once what the others are. Where they are not there it comes again in another role.
        """
        with socket.socket() as free:  # it is bound, but does not listen
            free.bind(("", 0))
            host = self.world.addresses[self.world.rank].rpartition(":")[0]
            own = Said(self.world.rank, role, f"{host}:{free.getsockname()[1]}", step)
            while True:
                said = [Said(*each) for each in self.link.gather("meeting", own)]
                roles = {each.role for each in said}
                is_whole = len(said) == self.world.world_size
                if role == Role.AT_END:
                    return roles if is_whole else {*roles, Role.LOST}
                if is_whole and Role.AT_END not in roles:
                    addresses = tuple(each.address for each in said)
                    self.world = dataclasses.replace(self.world, addresses=addresses)
                    self._steps = {each.rank: each.step for each in said if each.step is not None}
                    return roles
                time.sleep(AGAIN_S)

    def barrier(self) -> None:
        """All wait before an epoch's first step: no step has failed, so the tensors are those that steps change."""
        if self._from_replica:
            self._handles = self.framework.handles()
        super().barrier()

    def finish(self) -> None:
        if self._meet(Role.AT_END) != {Role.AT_END}:
            self._at_end = LaunchError("a rank was lost before all had come to the end")
            raise self._at_end

    def close(self) -> None:
        """A rank that is lost from now on is missed by no other."""
        self.link.finish()
        try:
            self.framework.close()
        except RuntimeError as error:
            if not tells_of_a_loss(error):
                raise
            log.info("a rank was lost at the end: %s", error)


@dataclass(frozen=True, slots=True)
class Held:
    """A copy of a rank's part of the state: model, optimizer and running statistics. Random generators go on by themselves."""

    tensors: Arrays
    statistics: Arrays

    @classmethod
    def of(cls, handles: Sequence[TensorHandle], framework: Framework) -> Self:
        own = framework.local_state()
        return cls(
            {each.name: np.array(each.read(), order="C") for each in handles},
            {name: np.array(own[name], order="C") for name in own if name.startswith("buffer/")},
        )

    def arrays(self) -> list[NDArray[np.uint8]]:
        """Their bytes."""
        each = [*self.tensors.values(), *self.statistics.values()]
        return [array.reshape(-1).view(np.uint8) for array in each if array.size]

    def put(self, framework: Framework) -> None:
        for handle in framework.handles():
            handle.write(self.tensors[handle.name])
        framework.load_local_state({**framework.local_state(), **self.statistics})


def whole_step(steps: Mapping[int, int], parts: int) -> int | None:
    """The last step after which survivors hold every part of the state; None if they hold no such step.

    `steps` has the step of each survivor. They may be one step apart.
    """
    of_part = [{steps[rank] for rank in steps if rank % parts == part} for part in range(parts)]
    return max(set.intersection(*of_part), default=None)


def tells_of_a_loss(error: BaseException | None) -> bool:
    """Whether Gloo has raised it, or another error was raised because of it."""
    if error is None:
        return False
    return "gloo" in str(error).lower() or tells_of_a_loss(error.__cause__)
