"""How long a run takes that is struck at given times: what `model` expects on average, for the failures that came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide.model import Saving

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lost:
    """What one failure costs. Arrays have shape (draws,)."""

    down_s: Floats
    """Until training goes on from a version."""
    pause_s: Floats
    """Until survivors go on."""
    survived: NDArray[np.bool_]
    """Whether survivors go on."""


def finished_s(
    strikes: Sequence[float],
    lost: Sequence[Lost],
    work_s: Floats,
    interval_s: Floats,
    saving: Saving,
) -> Floats:
    """Seconds until the work is done, (draws,), of a run that is struck at these seconds after it began.

    `work_s` is what it takes without checkpoints and failures; with a checkpoint after each `interval_s` of it, the last one included.
    """
    period_s, lag_s = (np.asarray(of(interval_s)) for of in (saving.period_s, saving.lag_s))
    from_s, done_s, up_s, on_s, paused_s, paused_since = (np.zeros_like(work_s) for _ in range(6))
    for at, cost in zip(strikes, lost, strict=True):
        strikes_it = at < from_s + _rest_s(work_s - done_s, interval_s, period_s)
        to_come_s = np.maximum(on_s - at, 0.0)  # of the pauses, which are all in from_s
        trained_s = np.maximum(at - from_s + to_come_s, 0.0)
        paused = strikes_it & cost.survived & (at >= up_s)
        restarts = strikes_it & ~paused
        # The version of the period that ended last goes on being written while survivors pause.
        ended = np.floor(np.maximum(trained_s - np.minimum(lag_s, 0.0), 0.0) / period_s)
        before_s = np.where(paused_since == ended, paused_s, 0.0)
        is_written = trained_s - ended * period_s + before_s - to_come_s >= lag_s
        kept_s = np.maximum(np.where(is_written, ended, ended - 1), 0.0) * interval_s
        done_s = np.where(restarts, np.minimum(done_s + kept_s, work_s), done_s)
        up_s = np.where(restarts, at + cost.down_s, up_s)
        from_s = np.where(restarts, up_s, np.where(paused, from_s + cost.pause_s, from_s))
        on_s = np.where(restarts, 0.0, np.where(paused, np.maximum(on_s, at) + cost.pause_s, on_s))
        paused_s = np.where(restarts, 0.0, np.where(paused, before_s + cost.pause_s, paused_s))
        paused_since = np.where(paused, ended, paused_since)
    return np.asarray(from_s + _rest_s(work_s - done_s, interval_s, period_s))


def _rest_s(work_s: Floats, interval_s: Floats, period_s: Floats) -> Floats:
    """What so much work takes with its checkpoints. A millionth is for rounding."""
    saves = np.floor(work_s / interval_s + 1e-6)
    return np.asarray(work_s + saves * (period_s - interval_s))
