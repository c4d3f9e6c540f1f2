"""Ablations: restarts that leave out a part of the state on purpose, the negative controls of the resume proof.

They change the state after the strategy has loaded it, so strategies need not know them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ckptbench.common.errors import CheckpointError
from ckptbench.common.removal import remove_or_warn
from ckptbench.frameworks.contract import Arrays, Framework

REPLACED = {"random": "random/", "dropout": "seed/", "statistics": "buffer/"}
"""Parts of `Framework.local_state`, with the beginning of the names of their arrays."""
FORGOTTEN = ("momentum", "first_update")
"""Parts that the framework leaves out itself: see `Framework.forget`."""
STATISTICS = "statistics"


class Ablation:
    """Takes `part` out of the state that a framework has loaded.

    Make it before the load: the part goes back to its value in the new process before the load. Exception: running
    statistics become those of rank 0. It does nothing if `part` is in neither REPLACED nor FORGOTTEN.
    """

    def __init__(self, part: str, framework: Framework, *, rank: int, exchange: Path) -> None:
        """`exchange` is a folder that all ranks share. Rank 0 passes its statistics to the others through it."""
        self._part = part
        self._framework = framework
        self._rank = rank
        self._statistics = exchange / "statistics-of-rank-0.npz"
        self._before = framework.local_state() if part in REPLACED else {}

    def apply(self) -> None:
        """Leave the part out. Call it on every rank after the load.

        Raises CheckpointError if the rank's state has no such part, because such a restart would show nothing.
        """
        if self._part in REPLACED:
            loaded = self._framework.local_state()
            other = self._of_rank_0(loaded) if self._part == STATISTICS else self._before
            self._framework.load_local_state(replaced(self._part, loaded, other))
        elif self._part in FORGOTTEN:
            self._framework.forget(self._part)

    def _of_rank_0(self, loaded: Arrays) -> Arrays:
        """The running statistics of rank 0, as if only rank 0 had saved its own."""
        if self._rank == 0:
            with self._statistics.open("wb") as file:
                np.savez(file, **_arrays_of(STATISTICS, loaded))  # type: ignore[arg-type]
        self._framework.barrier()
        with np.load(self._statistics, allow_pickle=False) as archive:
            statistics = {name: archive[name] for name in archive.files}
        self._framework.barrier()
        if self._rank == 0:
            remove_or_warn(self._statistics)
        return statistics


def replaced(part: str, state: Arrays, other: Arrays) -> Arrays:
    """`state` with `part` taken from `other`. Raises CheckpointError if `state` has no such part."""
    names = _arrays_of(part, state)
    if not names:
        raise CheckpointError(
            f"omit is {part}, and this rank's state has nothing under {REPLACED[part]}: leaving it out would show nothing; use a model with that"
            " state, or another omission"
        )
    return {**state, **{name: other[name] for name in names}}


def _arrays_of(part: str, state: Arrays) -> Arrays:
    return {name: array for name, array in state.items() if name.startswith(REPLACED[part])}
