"""The simulation of `benchmarks/coverage.py`, with fewer studies: intervals of every table hold what they say."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.coverage import COLUMNS, Shape, Simulation, coverage, reaches, with_chance
from ckptbench.analysis.tables.registry import DERIVED

STUDIES = 20


@pytest.mark.parametrize("spread", [0.0, 0.05])
@pytest.mark.parametrize("repeats", [2, 5])
def test_95_percent_intervals_hold_the_truth(repeats: int, spread: float) -> None:
    shares = coverage(Shape(repeats), spread, STUDIES)
    assert shares.keys() == COLUMNS.keys()
    too_few = {column: own.mean() for column, own in shares.items() if own.mean() < 0.93}
    assert not too_few


def test_every_column_that_has_an_interval_is_simulated() -> None:
    ends = {
        column.name.removesuffix("_lo")
        for entry in DERIVED.values()
        for column in entry.table.columns
        if column.name.endswith("_lo")
    }
    assert ends == COLUMNS.keys()


def test_the_simulated_study_is_known_without_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    for within in ("WITHIN_STEPS", "WITHIN_STALLS"):
        monkeypatch.setattr(f"benchmarks.coverage.{within}", 0.0)
    shape = Shape(repeats=2)
    tables = Simulation(shape, 0.0, np.random.default_rng(0)).tables()
    for column, (name, truth) in COLUMNS.items():
        rows = with_chance(column, tables[name])
        assert len(rows)
        known = [truth(shape, row) for row in rows.to_dict("records")]
        assert rows[column].tolist() == pytest.approx(known)


def test_more_repeats_make_narrower_intervals() -> None:
    few, many = (reaches(Shape(repeats), 0.05, studies=3) for repeats in (2, 5))
    assert few.keys() == COLUMNS.keys()
    for column, (lo, hi) in few.items():
        assert lo < many[column][0] < 0 < many[column][1] < hi
