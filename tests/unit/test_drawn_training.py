"""Training under failures drawn at random has the goodput of the formula where there is one."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_training import Times, exponential, useful_part

from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.model import goodput

HOUR = 3600.0
BLOCKING = Saving(stall_s=20.0, durable_s=20.0)
BEHIND = Saving(stall_s=2.0, durable_s=90.0, slowdown_s=10.0)
LATE = Saving(stall_s=2.0, durable_s=400.0, slowdown_s=10.0)
RESTART = Recovering(down_s=200.0)
ELASTIC = Recovering(down_s=200.0, survived=0.7, pause_s=30.0)
FAR = GlobalTier(saving=Saving(stall_s=15.0, durable_s=120.0), every=4, needed=0.3, down_s=260.0)


def often(part: float) -> Recovering:
    """A recovery under which survivors pause for that part of the 10 minutes between failures."""
    return Recovering(down_s=60.0, survived=0.9, pause_s=part * 600)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def seconds(*times: float) -> Times:
    return np.array([times])


@pytest.mark.parametrize(
    ("saving", "recovering", "global_tier", "mean_s", "simplified"),
    [
        *((BLOCKING, RESTART, None, mean_s, 0.0) for mean_s in (600.0, HOUR, 10 * HOUR)),
        *((BEHIND, RESTART, None, mean_s, 0.0) for mean_s in (600.0, HOUR, 10 * HOUR)),
        # A save waits for the one before, but not after a failure.
        *((LATE, RESTART, None, mean_s, 0.0) for mean_s in (600.0, HOUR, 10 * HOUR)),
        *((BEHIND, ELASTIC, None, mean_s, 0.0) for mean_s in (600.0, HOUR, 10 * HOUR)),
        # Survivors pause for a tenth, half and nine tenths of the time between failures.
        *(
            (saving, often(part), None, 600.0, 0.0)
            for saving in (BLOCKING, LATE)
            for part in (0.1, 0.5, 0.9)
        ),
        # The formula takes periods of two levels to be equally long, and their lag to be short.
        *((BLOCKING, RESTART, FAR, mean_s, 2e-3) for mean_s in (HOUR, 10 * HOUR)),
    ],
)
def test_it_agrees_with_the_formula_within_its_own_error(
    saving: Saving,
    recovering: Recovering,
    global_tier: GlobalTier | None,
    mean_s: float,
    simplified: float,
) -> None:
    """Over so many failures that where training begins and ends hardly counts."""
    until_s, rng = 5_000 * mean_s, np.random.default_rng(7)
    times = exponential(rng, replicas=256, gpus=8, mean_s=8 * mean_s, until_s=until_s)
    drawn = useful_part(times, until_s, 240.0, saving, recovering, global_tier=global_tier, rng=rng)
    error = drawn.std(ddof=1) / np.sqrt(len(drawn))
    exact = goodput(240.0, saving, recovering, 1 / mean_s, global_tier)
    assert drawn.mean() == pytest.approx(exact, abs=4 * error + simplified)


def test_without_failures_only_the_checkpoints_cost_time(rng: np.random.Generator) -> None:
    assert useful_part(seconds(np.inf), 2000.0, 180.0, BLOCKING, RESTART, rng=rng) == pytest.approx(0.9)  # fmt: skip


@pytest.mark.parametrize(
    ("saving", "failure_s", "versions"),
    [
        (BLOCKING, 399.0, 1),
        (BLOCKING, 401.0, 2),
        (Saving(stall_s=20.0, durable_s=60.0), 401.0, 1),
        (Saving(stall_s=20.0, durable_s=60.0), 441.0, 2),
        # The first save after a start waits for none: durable at 180 + 300, the second one 300 s later.
        (Saving(stall_s=20.0, durable_s=300.0), 479.0, 0),
        (Saving(stall_s=20.0, durable_s=300.0), 481.0, 1),
        (Saving(stall_s=20.0, durable_s=300.0), 779.0, 1),
        (Saving(stall_s=20.0, durable_s=300.0), 781.0, 2),
    ],
)
def test_a_failure_loses_what_is_newer_than_the_newest_durable_version(
    rng: np.random.Generator, saving: Saving, failure_s: float, versions: int
) -> None:
    until_s = failure_s + 200 + 90
    useful = useful_part(seconds(failure_s), until_s, 180.0, saving, RESTART, rng=rng) * until_s
    assert useful == pytest.approx(versions * 180 + 90)


def test_a_failure_while_ranks_recover_has_them_recover_anew(rng: np.random.Generator) -> None:
    useful = useful_part(seconds(401.0, 500.0), 800.0, 180.0, BLOCKING, RESTART, rng=rng) * 800
    assert useful == pytest.approx(2 * 180 + 100)


def test_survivors_lose_only_their_pause(rng: np.random.Generator) -> None:
    elastic = Recovering(down_s=200.0, survived=1.0, pause_s=30.0)
    useful = useful_part(seconds(100.0), 180.0, 180.0, BLOCKING, elastic, rng=rng) * 180
    assert useful == pytest.approx(150)


@pytest.mark.parametrize(("paused_s", "versions"), [(10.0, 1), (50.0, 1), (60.0, 2)])
def test_a_version_goes_on_being_written_while_survivors_pause(paused_s: float, versions: int) -> None:  # fmt: skip
    """The second one from 380 to 460 s. Survivors pause at 402 s, and 3 s of training later none survives."""
    late = Saving(stall_s=20.0, durable_s=80.0)
    elastic = Recovering(down_s=200.0, survived=0.5, pause_s=paused_s)
    rng, drawn = np.random.default_rng(8), np.random.default_rng(8).random(2)
    assert drawn[0] < 0.5 < drawn[1]
    failed_s = 405.0 + paused_s
    until_s = failed_s + 200 + 90
    useful = useful_part(seconds(402.0, failed_s), until_s, 180.0, late, elastic, rng=rng)
    assert useful * until_s == pytest.approx(versions * 180 + 90)


def test_a_pause_is_not_a_time_in_which_all_recover(rng: np.random.Generator) -> None:
    elastic = Recovering(down_s=200.0, survived=1.0, pause_s=30.0)
    useful = useful_part(seconds(100.0, 110.0), 180.0, 180.0, BLOCKING, elastic, rng=rng) * 180
    assert useful == pytest.approx(120)


@pytest.mark.parametrize(("needed", "version"), [(0.0, 7), (1.0, 4)])
def test_a_failure_may_need_the_version_of_the_second_level(
    rng: np.random.Generator, needed: float, version: int
) -> None:
    """Of periods of 200 s: the second level has version 4, and the first one version 7."""
    global_tier = GlobalTier(
        saving=Saving(stall_s=0.0, durable_s=20.0), every=4, needed=needed, down_s=260.0
    )
    down_s = 260 if needed else 200
    until_s = 1500 + down_s + 50.0
    useful = useful_part(seconds(1500.0), until_s, 180.0, BLOCKING, RESTART, global_tier=global_tier, rng=rng) * until_s  # fmt: skip
    assert useful == pytest.approx(version * 180 + 50)
