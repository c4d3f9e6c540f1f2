"""The tables and the figure of failure rates say what was read and fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from figure_parts import caption_of, lines, titles

from ckptbench.decide.failure_log import Gaps
from ckptbench.decide.fits import fit
from ckptbench.decide.rate_tables import FAILURE_FITS, FAILURE_RATES, failure_fits, failure_rates
from ckptbench.decide.rates import FailureRate, read_rate, read_rates
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
    assert table.loc["kokolis-16k", "projected"]
    assert pd.isna(table.loc["kokolis-16k", "mean_gpu_hours_lo"])
    assert table["p_exponential"].notna().sum() == 1
    row = table.loc["log"]
    assert row["exponential_gpu_hours"] == pytest.approx(42 * 24 * 512 / 62)
    assert row["exponential_gpu_hours_lo"] < row["mean_gpu_hours"] < row["exponential_gpu_hours_hi"]
    assert row["shape_lo"] < row["shape"] < row["shape_hi"]


def test_the_curves_go_from_none_of_the_gaps_to_all(rates: list[FailureRate]) -> None:
    table = failure_fits(rates)
    assert set(table["rate"]) == {"log"}
    assert set(table["curve"]) == {"observed", "exponential", "weibull"}
    for _, own in table.groupby("curve"):
        assert own["part"].is_monotonic_increasing
        assert own["part"].iloc[0] < 0.02
        assert own["part"].iloc[-1] > 0.95
    observed = table[table["curve"] == "observed"]
    assert EXAMPLE.fit is not None
    assert len(observed) == len(np.unique(EXAMPLE.fit.gaps.hours)) + 1


def test_without_logs_the_tables_have_their_columns(rates: list[FailureRate]) -> None:
    assert list(failure_fits(rates[:2])) == FAILURE_FITS.names
    assert list(failure_rates([])) == FAILURE_RATES.names


def test_the_figure_has_a_panel_for_each_log(rates: list[FailureRate]) -> None:
    log = Gaps(np.array([1.0, 5.0, 2.0]), 4.0)
    few = replace(EXAMPLE, name="few", title="Few", failures=3, fit=fit(log))
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
    assert texts[0] == "3 failures\nmean 4 [1.37, 19.4] h"
    assert texts[1].splitlines()[0] == "62 failures"
    assert "k = 0.765 [" in texts[1]
    assert "95 % intervals" in caption_of(figure)
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
