"""The time that a struck run takes by the model, against cases that are reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ckptbench.decide.arrivals import exponential
from ckptbench.decide.model import Recovering, Saving
from ckptbench.decide.simulate import useful_part
from ckptbench.decide.validate import Lost, finished_s

BLOCKING = Saving(stall_s=2.0, durable_s=2.0)
BEHIND = Saving(stall_s=1.0, durable_s=5.0, slowdown_s=1.0)
RESTART = Lost(down_s=np.array([7.0]), pause_s=np.array([0.0]), survived=np.array([False]))
ELASTIC = Lost(down_s=np.array([7.0]), pause_s=np.array([3.0]), survived=np.array([True]))


def finished(strikes: list[float], lost: Lost, saving: Saving = BLOCKING) -> float:
    """Of 100 s of work, with a checkpoint after every 20 s of it."""
    done = finished_s(strikes, [lost] * len(strikes), np.array([100.0]), np.array([20.0]), saving)
    return float(done[0])


def test_undisturbed_it_takes_its_work_and_its_checkpoints() -> None:
    assert finished([], RESTART) == pytest.approx(110.0)
    assert finished([], RESTART, BEHIND) == pytest.approx(110.0)


@pytest.mark.parametrize(
    ("strike", "kept"),
    [(10.0, 0), (21.9, 0), (22.1, 1), (43.9, 1), (44.1, 2), (109.9, 4)],
)
def test_a_failure_takes_it_back_to_the_newest_durable_version(strike: float, kept: int) -> None:
    assert finished([strike], RESTART) == pytest.approx(strike + 7 + (5 - kept) * 22)


@pytest.mark.parametrize(("strike", "kept"), [(24.9, 0), (25.1, 1), (46.9, 1), (47.1, 2)])
def test_a_version_counts_only_from_when_it_is_durable(strike: float, kept: int) -> None:
    assert finished([strike], RESTART, BEHIND) == pytest.approx(strike + 7 + (5 - kept) * 22)


def test_a_failure_while_it_recovers_has_it_recover_anew() -> None:
    assert finished([30.0, 35.0], RESTART) == pytest.approx(35 + 7 + 4 * 22)


def test_a_failure_after_its_end_does_not_count() -> None:
    assert finished([110.1], RESTART) == pytest.approx(110.0)


def test_survivors_lose_only_the_pause() -> None:
    assert finished([30.0, 60.0], ELASTIC) == pytest.approx(116.0)


def test_it_takes_as_long_as_the_simulation_of_the_decision_says() -> None:
    """Over a long time, in which the unfinished end hardly counts. Without slower steps, of which the simulation has some in each period, the first too."""
    saving = Saving(stall_s=1.0, durable_s=5.0)
    mean_s, interval_s, until_s = 400.0, 60.0, 200_000.0
    random = np.random.default_rng(3)
    times = exponential(random, replicas=20, gpus=1, mean_s=mean_s, until_s=until_s)
    useful = useful_part(times, until_s, interval_s, saving, Recovering(down_s=7.0), rng=random)
    for replica, part in zip(times, useful, strict=True):
        strikes = list(replica[np.isfinite(replica)])
        work_s = np.array([part * until_s])
        took = finished_s(strikes, [RESTART] * len(strikes), work_s, np.array([interval_s]), saving)
        assert took[0] == pytest.approx(until_s, rel=1e-3)
