"""Digests of a rank's state: they show whether two runs are equal bit for bit, without keeping all tensors."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.frameworks.contract import Arrays, Framework
from ckptbench.matrix.networks.tensor_groups import group_of
from ckptbench.run.events import Digest
from ckptbench.run.layout import KEPT_BYTES
from ckptbench.run.position import Position
from ckptbench.run.recorder import Recorder


class StateDigester:
    """Writes digests of one rank's whole state into its trace.

    With `proof` off it writes only one digest, at the end, of the tensors of model and optimizer.
    """

    def __init__(self, framework: Framework, recorder: Recorder, *, proof: bool) -> None:
        self._framework = framework
        self._recorder = recorder
        self._proof = proof

    def see(self, when: str, position: Position, data_position: tuple[int, int]) -> None:
        """Write a digest if `proof` is on. `data_position` is the epoch of the next sample and the step in it."""
        if self._proof:
            place = {"position/data": np.asarray(data_position, np.int64)}
            self._write(when, position, {**self._framework.local_state(), **place})

    def see_version(self, position: Position, level: str) -> None:
        """Write a digest of the state that was just loaded from a version of `position`, if `proof` is on."""
        if self._proof:
            self._write("version", position, self._framework.local_state(), level)

    def see_end(self, position: Position, path: Path) -> None:
        """Write the last digest. With `proof` on also write all arrays to `path`, if the tensors fit in KEPT_BYTES."""
        state = self._framework.local_state() if self._proof else {}
        self._write("end", position, state)
        tensors = self._framework.state_dict()
        updated = (each for name, each in tensors.items() if group_of(name) != "statistics")
        if self._proof and sum(array.nbytes for array in updated) <= KEPT_BYTES:
            with path.open("wb") as file:
                np.savez(file, **tensors, **state)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())

    def _write(
        self, when: str, position: Position, state: Arrays, level: str | None = None
    ) -> None:
        self._recorder.write(
            Digest(
                when=when,
                step=position.step,
                epoch=position.epoch,
                level=level,
                tensors=digests(self._framework.state_dict()),
                rank_state=digests(state),
            )
        )


def digest(tensor: NDArray[np.generic]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of dtype, shape and bytes (C order). Equal bits: equal digests."""
    contiguous = np.ascontiguousarray(tensor)
    state = hashlib.sha256(f"{contiguous.dtype.str}{tensor.shape}".encode())
    state.update(contiguous.reshape(-1).view(np.uint8).data)
    return state.hexdigest()[:16]


def digests(tensors: dict[str, NDArray[np.generic]]) -> dict[str, str]:
    return {name: digest(tensor) for name, tensor in sorted(tensors.items())}
