"""The position of training: how many steps are done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Number of steps done in the run (`step`), the epoch (from 0), and the number of steps done in that epoch."""

    step: int
    epoch: int
    step_in_epoch: int
