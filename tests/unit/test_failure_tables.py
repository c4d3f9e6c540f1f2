"""The tables and the figure of failure rates say what was read and fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from figure_parts import caption_of, lines, titles

from ckptbench.decide.rate_tables import FAILURE_FITS, FAILURE_RATES, failure_fits, failure_rates
from ckptbench.decide.rates import FailureRate, read_rate, read_rates
from ckptbench.decide.watched import Watched
from ckptbench.figures.failure_fits import draw
from ckptbench.figures.kit.style import paper

FAILURES = Path(__file__).resolve().parents[2] / "config" / "failures"
EXAMPLE = read_rate(FAILURES / "example" / "log.yaml")


@pytest.fixture(scope="module")
def rates() -> list[FailureRate]:
    return [*read_rates(FAILURES), EXAMPLE]


def test_the_table_has_a_row_for_each_rate(rates: list[FailureRate]) -> None:
    table = failure_rates(rates).set_index("rate")
    assert list(table.index) == sorted(rate.name for rate in rates)
    assert table.loc["llama3", "mean_gpu_hours"] == pytest.approx(50_677, abs=1)
    assert table.loc["llama3", "failures"] == 419
    assert pd.isna(table.loc["kokolis-rsc-1", "seen_lo"])
    assert table["risk_gpu_hours"].notna().sum() == 1
    row = table.loc["log"]
    assert (row["failures"], row["found"]) == (60, 62)
    assert row["mean_gpu_hours"] == pytest.approx(row["risk_gpu_hours"] / 60)
    assert row["mean_gpu_hours_lo"] < row["mean_gpu_hours"] < row["mean_gpu_hours_hi"]
    assert row["overdispersion"] >= 1
    assert (row["worst_node"], row["worst_node_failures"]) == ("node60", 4)


def test_the_curves_go_from_none_of_the_gaps_to_all(rates: list[FailureRate]) -> None:
    table = failure_fits(rates)
    assert set(table["rate"]) == {"log"}
    assert set(table["curve"]) == {"observed", "exponential", "weibull"}
    for _, own in table.groupby("curve"):
        assert own["part"].is_monotonic_increasing
        assert own["part"].iloc[0] < 0.03
        assert own["part"].iloc[-1] > 0.95
    observed = table[table["curve"] == "observed"]
    assert EXAMPLE.log is not None
    assert len(observed) == len(np.unique(EXAMPLE.log.gaps_gpu_hours[:-1])) + 1


@pytest.mark.parametrize("hours", [[3.0], [3.0, 12.0], [1e-3 * n for n in range(1, 40)]])
def test_any_log_has_curves(hours: list[float]) -> None:
    """One failure; one at the end; gaps that are all equal."""
    log = Watched(np.array(hours), np.array([0.0, 12.0]), np.array([0.0, 1.2e9])).counted(0)
    table = failure_fits([replace(EXAMPLE, log=log)])
    assert table["part"].between(0, 1).all()
    assert table["gap_gpu_hours"].max() <= 2.4e9


@pytest.mark.parametrize(("failures", "curves"), [(9, 2), (10, 3)])
def test_few_failures_have_no_weibull_curve(failures: int, curves: int) -> None:
    times, clock = np.arange(1.0, failures + 1) ** 2, np.array([0.0, 200.0])
    log = Watched(times, clock, clock).counted(0)
    assert failure_fits([replace(EXAMPLE, log=log)])["curve"].nunique() == curves


def test_without_logs_the_tables_have_their_columns(rates: list[FailureRate]) -> None:
    assert list(failure_fits(rates[:2])) == FAILURE_FITS.names
    assert list(failure_rates([])) == FAILURE_RATES.names


def test_the_figure_has_a_panel_for_each_log(rates: list[FailureRate]) -> None:
    times = Watched(np.array([1.0, 6.0, 8.0]), np.array([0.0, 12.0]), np.array([0.0, 12.0]))
    few = replace(EXAMPLE, name="few", title="Few", failures=3, log=times.counted(0))
    logs = [*rates, few]
    with paper():
        figure = draw({"failure_rates": failure_rates(logs), "failure_fits": failure_fits(logs)})
    assert titles(figure) == ["Few", "Made-up log, 512 GPUs"]
    drawn_curves = [
        [name for name in ("observed", "exponential", "weibull") if lines(axes, name)]
        for axes in figure.axes
    ]
    assert drawn_curves == [["observed", "exponential"], ["observed", "exponential", "weibull"]]
    texts = [
        next(text.get_text() for text in axes.texts if text.get_gid() == "found")
        for axes in figure.axes
    ]
    assert texts[0].splitlines()[0] == "3 failures"
    assert texts[1] == "60 failures\nmean 8,516 GPU-hours\n[5,647, 12,843]\nφ = 1"
    assert "no rate comes from them" in caption_of(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "observed",
        "exponential",
        "Weibull",
    ]


def test_without_logs_the_figure_says_so(rates: list[FailureRate]) -> None:
    known = rates[:-1]
    with paper():
        figure = draw({"failure_rates": failure_rates(known), "failure_fits": failure_fits(known)})
    assert not figure.axes
    (text,) = figure.findobj(lambda artist: artist.get_gid() == "nothing")
    assert "no fit to show" in text.get_text().replace("\n", " ")
