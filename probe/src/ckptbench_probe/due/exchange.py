"""How the plan of rank 0 reaches the other ranks: by the store of torch.distributed, by mpi4py, or by the program's own function."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import Any, Callable

from ckptbench_probe.variables import Seat, seat, seat_by_environment

Plan = dict[str, Any]
"""Whole numbers, floats and lists of them."""
Exchange = Callable[[Any], Any]
"""Called on all ranks, each with its own plan; returns that of rank 0."""

LONGEST_WAIT_S = 1800.0
"""For rank 0, which comes to the same step."""
POLL_S = 0.001
_NUMBERS = itertools.count()
"""Of the stores' users in this process, which all ranks make in the same order."""


class NotConnectedError(RuntimeError):
    """The message is one line for the user."""


def connection() -> tuple[int, Exchange]:
    """The number of ranks, and what connects them. Raises NotConnectedError where the environment names several ranks, and nothing here joins them."""
    torch_seat = seat() if _torch_is_joined() else None
    if torch_seat is not None:
        store = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
        if torch_seat.ranks == 1:
            return 1, lambda plan: plan
        if store is not None:  # the backend MPI has none
            return torch_seat.ranks, by_store(store, torch_seat)
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() > 1:
        world = mpi.COMM_WORLD.Dup()  # no message of the program can meet those of this one
        return world.Get_size(), world.bcast
    named = seat_by_environment(os.environ)
    if named is not None and named.ranks > 1:
        raise NotConnectedError(
            f"ckptbench_probe.Interval: the environment names {named.ranks} ranks, and this process is joined to none:"
            " initialise torch.distributed or mpi4py before the first due(), or pass exchange=, a broadcast from rank 0"
        )
    return 1, lambda plan: plan


def _torch_is_joined() -> bool:
    distributed: Any = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def by_store(store: Any, own: Seat) -> Exchange:
    """No collective, which could meet those of a save in the background; and rank 0 waits for nobody, also where only it saves.

    torchrun keeps a store across restarts. So each rank asks under a new name for the name of rank 0's plans, as it joins. Rank 0 replies before
    its first plan: that is a step later at least, which the ranks begin together.
    """
    root = f"ckptbench_probe/{next(_NUMBERS)}"
    name, turns = os.urandom(8).hex(), itertools.count()
    names: list[str] = []
    if own.rank > 0:
        store.set(f"{root}/asks/{own.rank}", name)

    def reply() -> None:
        names.append(name)
        for asks in (f"{root}/asks/{rank}" for rank in range(1, own.ranks)):
            if store.check([asks]):
                store.set(f"{root}/{store.get(asks).decode()}", name)

    def exchange(plan: Any) -> Any:
        if own.rank == 0:
            if not names:
                reply()
            store.set(f"{root}/{name}/{next(turns)}", json.dumps(plan))
            return plan
        if not names:
            names.append(_waited_for(store, f"{root}/{name}", own).decode())
        return json.loads(_waited_for(store, f"{root}/{names[0]}/{next(turns)}", own))

    return exchange


def _waited_for(store: Any, key: str, own: Seat) -> Any:
    """A wait inside the store would keep other threads of this process from it."""
    end_s = time.monotonic() + LONGEST_WAIT_S
    while not store.check([key]):
        if time.monotonic() > end_s:
            raise NotConnectedError(
                f"ckptbench_probe.Interval: rank {own.rank} waited {LONGEST_WAIT_S / 60:.0f} min for the plan of rank 0: call due() on all ranks, at each step"
            )
        time.sleep(POLL_S)
    return store.get(key)
