"""The bootstrap: against closed forms, and the same on every call."""

from __future__ import annotations

import numpy as np
import pytest

from ckptbench.analysis.cost import statistics
from ckptbench.analysis.cost.statistics import (
    UNKNOWN,
    Interval,
    blocks,
    cluster_medians,
    cluster_totals,
    generator,
    percentile_interval,
    varies,
)


def test_the_spread_of_resampled_means_is_the_standard_error() -> None:
    values = np.random.default_rng(0).normal(size=(400, 1))
    (totals,) = cluster_totals([[values]], generator("a"), resamples=4000)
    means = totals[:, 0, 0] / 400
    assert means.mean() == pytest.approx(values.mean(), abs=0.005)
    assert means.std() == pytest.approx(values.std() / 20, rel=0.05)


def test_runs_are_drawn_whole() -> None:
    # Two runs without any variation within: a mean is 0, 5 or 10, with probabilities 1/4, 1/2, 1/4.
    clusters = [[np.full((10, 1), value)] for value in (0.0, 10.0)]
    (totals,) = cluster_totals(clusters, generator("a"), resamples=4000)
    means, counts = np.unique(totals.sum(axis=(1, 2)) / 20, return_counts=True)
    assert means.tolist() == [0.0, 5.0, 10.0]
    assert (counts / 4000).tolist() == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_quantities_of_one_observation_stay_together() -> None:
    pairs = np.column_stack([np.arange(10.0), 2 * np.arange(10.0)])
    (totals,) = cluster_totals([[pairs]], generator("a"))
    assert totals[..., 1] == pytest.approx(2 * totals[..., 0])


def test_a_stratum_of_one_observation_is_kept_and_an_empty_one_adds_nothing() -> None:
    strata = [np.array([[3.0]]), np.zeros((0, 2))]
    one, empty = cluster_totals([strata, strata], generator("a"), resamples=5)
    assert one.tolist() == [[[3.0], [3.0]]] * 5
    assert not empty.any()


def test_medians_weigh_runs_alike() -> None:
    short, long = np.array([1.0]), np.full(99, 2.0)
    medians = cluster_medians([short, long], generator("a"), resamples=2000)
    # Short drawn twice: 1; long twice: 2; one of each: as many of either, 1.5.
    assert set(medians) == {1.0, 1.5, 2.0}
    assert medians.mean() == pytest.approx(1.5, abs=0.05)


def test_large_samples_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "CHUNK", 7)
    values = np.arange(5.0)
    (totals,) = cluster_totals([[values[:, None]]], generator("a"), resamples=50)
    assert totals.shape == (50, 1, 1)
    assert 0 < totals.mean() < 20
    assert len(cluster_medians([values], generator("a"), resamples=50)) == 50


def test_the_same_key_draws_the_same_numbers() -> None:
    draws = [generator(*key).random(3).tolist() for key in (("a", 1), ("a", 1), ("a", 2))]
    assert draws[0] == draws[1] != draws[2]


def test_a_percentile_interval_cuts_off_equal_tails() -> None:
    assert percentile_interval(np.arange(1001.0)) == pytest.approx((25.0, 975.0))
    assert percentile_interval(np.array([1.0, np.nan])) is UNKNOWN


def test_intervals_overlap_where_they_touch_and_are_unknown_where_one_is() -> None:
    assert Interval(0.0, 1.0).overlaps(Interval(1.0, 2.0)) is True
    assert Interval(0.0, 1.0).overlaps(Interval(1.1, 2.0)) is False
    assert Interval(0.0, 1.0).overlaps(UNKNOWN) is None
    assert UNKNOWN.overlaps(Interval(0.0, 1.0)) is None


def test_blocks_keep_neighbours_together_and_lose_nothing() -> None:
    parts = blocks(np.arange(10.0))
    assert parts.tolist() == [[6.0, 4.0], [15.0, 3.0], [24.0, 3.0]]
    assert len(blocks(np.ones(100_000))) == statistics.MAX_BLOCKS
    assert blocks(np.zeros(0)).shape == (0, 2)


def test_one_observation_does_not_vary() -> None:
    one, two = np.zeros((1, 1)), np.zeros((2, 1))
    assert not varies([[one, one]])
    assert varies([[one, two]])
    assert varies([[one], [one]])
