"""What a rank writes down so that its run can be held, bit for bit, against another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ckptbench.checkpoints.version import Position
from ckptbench.digest import digests
from ckptbench.frameworks.base import Arrays, Framework
from ckptbench.manifest import KEPT_BYTES
from ckptbench.recorder import Recorder


class Witness:
    """Writes digests of one rank's whole state into its trace; with `proof` off, of its tensors at the end alone."""

    def __init__(self, framework: Framework, recorder: Recorder, *, proof: bool) -> None:
        self._framework = framework
        self._recorder = recorder
        self._proof = proof

    def see(self, when: str, position: Position, data_position: tuple[int, int]) -> None:
        """`data_position` is the epoch whose order is read next, and the step in it."""
        if self._proof:
            place = {"position/data": np.asarray(data_position, np.int64)}
            self._write(when, position, {**self._framework.rank_state(), **place})

    def see_end(self, position: Position, path: Path) -> None:
        """The last digest, and with proof the arrays themselves, where they are not too large to be kept."""
        state = self._framework.rank_state() if self._proof else {}
        self._write("end", position, state)
        tensors = self._framework.held()
        if self._proof and sum(array.nbytes for array in tensors.values()) <= KEPT_BYTES:
            with path.open("wb") as file:
                np.savez(file, **tensors, **state)  # type: ignore[arg-type]

    def _write(self, when: str, position: Position, state: Arrays) -> None:
        self._recorder.event(
            "digest",
            when=when,
            step=position.step,
            epoch=position.epoch,
            tensors=digests(self._framework.held()),
            rank_state=digests(state),
        )
