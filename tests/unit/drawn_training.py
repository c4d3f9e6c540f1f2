"""Goodput by drawing failures: what `model` has in a formula, and what no formula has.

The same training as there: periods of an interval, a stall and slower steps; versions that count when they are durable.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.formulas import Floats

Times = NDArray[np.float64]
"""Failures of each replica in ascending order, (replicas, most failures of any), in seconds. Behind the last one: infinity."""


def exponential(
    rng: np.random.Generator, *, replicas: int, gpus: int, mean_s: float, until_s: float
) -> Times:
    """Of GPUs that each fail after `mean_s` on average, whatever their age. Together they are one Poisson process."""
    numbers = rng.poisson(np.full(replicas, gpus * until_s / mean_s))
    times = rng.random((replicas, max(1, int(numbers.max(initial=0))))) * until_s
    times[np.arange(times.shape[1]) >= numbers[:, None]] = np.inf
    times.sort(axis=1)
    return times


def useful_part(
    times: Times,
    until_s: float,
    interval_s: float,
    saving: Saving,
    recovering: Recovering,
    *,
    rng: np.random.Generator,
    global_tier: GlobalTier | None = None,
) -> NDArray[np.float64]:
    """Goodput of every replica (replicas,) whose failures are `times`, until `until_s`. All costs are single numbers.

    Training begins at 0 with a version. `rng` draws which failures survivors go on from, and which lose the versions of the
    first level. A failure while all ranks recover has them recover anew, of whichever kind it is. Work after the last version counts: nothing
    lost it.
    """
    replicas = len(times)
    state = _State(replicas, interval_s, saving, global_tier)
    kinds = rng.random(times.shape)
    lost = np.asarray(recovering.survived)
    needed = lost + (1 - lost) * np.asarray(0.0 if global_tier is None else global_tier.needed)
    for at, kind in zip(times.T, kinds.T, strict=True):
        comes = at < until_s
        is_down = at < state.up_s
        survived = comes & ~is_down & (kind < lost)
        state.pause(survived, at, recovering.pause_s)
        strikes = comes & ~survived
        from_global = strikes & (lost <= kind) & (kind < needed)
        state.fall_back(strikes, from_global, at)
        state.on_s = np.where(strikes, 0.0, state.on_s)  # a recovery of all ends the pause
        # A recovery that is cut short begins anew, from the same version unless that is lost now.
        state.is_from_global = np.where(strikes, from_global | (is_down & state.is_from_global), state.is_from_global)  # fmt: skip
        down_s = recovering.down_s if global_tier is None else np.where(state.is_from_global, global_tier.down_s, recovering.down_s)  # fmt: skip
        state.up_s = np.where(strikes, at + down_s, state.up_s)
        state.from_s = np.where(strikes, state.up_s, state.from_s)
    return state.useful_s(until_s, interval_s) / until_s


class _State:
    """Where every replica is: from `from_s` on it trains, after the version number `version` of the first level."""

    def __init__(
        self, replicas: int, interval_s: float, saving: Saving, global_tier: GlobalTier | None
    ) -> None:
        self._length_s, self._longer_s = _lengths(interval_s, saving, global_tier)
        both = _both(saving, global_tier)
        self._lag_s = float(np.asarray(saving.lag_s(interval_s)))
        self._global_tier_lag_s = float(np.asarray(both.lag_s(interval_s)))
        self._global_tier = global_tier
        self.from_s = np.zeros(replicas)
        self.up_s = np.zeros(replicas)
        """When all ranks had come up again. Survivors pause after it: then `from_s` is later."""
        self.on_s = np.zeros(replicas)
        """When survivors go on after their last pause."""
        self.paused_since = np.zeros(replicas)
        """The version of the first level at whose end of period `paused_s` begins."""
        self.paused_s = np.zeros(replicas)
        self.version = np.zeros(replicas)
        self.far_version = np.zeros(replicas)
        self.is_from_global = np.zeros(replicas, bool)

    def pause(self, survived: NDArray[np.bool_], at: NDArray[np.float64], pause_s: Floats) -> None:
        """Training stands still, the longer the more often. A version goes on being written meanwhile."""
        version, _ = self._periods(self._trained_s(survived, at))
        before_s = np.where(version == self.paused_since, self.paused_s, 0.0)
        self.paused_s = np.where(survived, before_s + pause_s, self.paused_s)
        self.paused_since = np.where(survived, version, self.paused_since)
        self.from_s += np.where(survived, pause_s, 0.0)
        self.on_s = np.where(survived, np.maximum(self.on_s, at) + pause_s, self.on_s)

    def fall_back(
        self, strikes: NDArray[np.bool_], from_global: NDArray[np.bool_], at: NDArray[np.float64]
    ) -> None:
        """Go back to the newest durable version, or to that of the second level."""
        trained_s = self._trained_s(strikes, at)
        near = self._durable(trained_s, at)
        if self._global_tier is not None:
            # Of the second level, a version is taken not to be written while survivors pause.
            written = self._versions(trained_s - self._global_tier_lag_s) // self._global_tier.every * self._global_tier.every  # fmt: skip
            self.far_version = np.where(strikes, np.maximum(self.far_version, written), self.far_version)  # fmt: skip
        self.version = np.where(
            from_global, self.far_version, np.where(strikes, near, self.version)
        )
        self.paused_since = np.where(strikes, -1.0, self.paused_since)

    def _trained_s(self, struck: NDArray[np.bool_], at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Since `version`, without pauses; 0 where ranks recover."""
        trained_s = at - self.from_s + self._to_pause_s(at)
        return np.maximum(np.where(struck, trained_s, 0.0), 0.0)

    def _to_pause_s(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the pauses in `from_s`, what is still to come."""
        return np.maximum(self.on_s - at, 0.0)

    def _durable(
        self, trained_s: NDArray[np.float64], at: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The newest version of the first level. A lag is never longer than a period, so that one version at most is still written."""
        if self._lag_s <= 0:
            return self._versions(trained_s - self._lag_s)
        version, since_s = self._periods(trained_s)
        paused_s = np.where(version == self.paused_since, self.paused_s, 0.0)
        is_written = since_s + paused_s - self._to_pause_s(at) >= self._lag_s
        return np.maximum(np.where(is_written, version, version - 1), self.version)

    def _versions(self, trained_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """The newest version whose period ended within so many seconds of training after `version`."""
        return self._periods(np.maximum(trained_s, 0.0))[0]

    def _periods(self, trained_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
        """The last version, and the seconds since: periods that end with a save to both levels are longer."""
        if self._global_tier is None:
            passed = np.floor(trained_s / self._length_s)
            return self.version + passed, trained_s - passed * self._length_s
        every = self._global_tier.every
        cycle_s = (every - 1) * self._length_s + self._longer_s
        # Counted from the last version of the second level.
        before = self.version % every
        since_s = before * self._length_s + trained_s
        cycles = np.floor(since_s / cycle_s)
        within_s = since_s - cycles * cycle_s
        passed = np.minimum(np.floor(within_s / self._length_s), every - 1)
        return (
            self.version - before + cycles * every + passed,
            within_s - passed * self._length_s,
        )

    def useful_s(self, until_s: float, interval_s: float) -> NDArray[np.float64]:
        version, since_s = self._periods(np.maximum(until_s - self.from_s, 0.0))
        return version * interval_s + np.minimum(since_s, interval_s)


def _lengths(
    interval_s: float, saving: Saving, global_tier: GlobalTier | None
) -> tuple[float, float]:
    """Of a period, and of one that ends with a save to both levels."""
    length_s = float(np.asarray(saving.period_s(interval_s)))
    if global_tier is None:
        return length_s, length_s
    return length_s, float(np.asarray(_both(saving, global_tier).period_s(interval_s)))


def _both(saving: Saving, global_tier: GlobalTier | None) -> Saving:
    """A save to two levels pays for both."""
    if global_tier is None:
        return saving
    other = global_tier.saving
    return Saving(
        stall_s=saving.stall_s + other.stall_s,
        slowdown_s=saving.slowdown_s + other.slowdown_s,
        durable_s=np.maximum(saving.durable_s, other.durable_s),
    )
