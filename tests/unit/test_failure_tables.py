"""The table of failure rates says what was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptbench.decide.decision import failure_rates
from ckptbench.decide.rates import FailureRate, read_rate, read_rates

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
    row = table.loc["log"]
    assert row["failures"] == 60
    assert row["mean_gpu_hours_lo"] < row["mean_gpu_hours"] < row["mean_gpu_hours_hi"]
