"""The 95 % intervals of every table hold the truth in at least 93 % of simulated studies."""

from __future__ import annotations

import numpy as np
import pytest
from interval_coverage import (
    COLUMNS,
    FAULTS,
    STRATEGY_COLUMNS,
    STRUCK_COLUMNS,
    Columns,
    coverage,
    derived,
    reaches,
    with_chance,
)
from simulated_studies import STRATEGIES, Shape, Simulation

from ckptbench.analysis.tables.registry import DERIVED
from tests.study.selection import FULL

STUDIES = 20
REPEATS = (2, 5) if FULL else (5,)
SPREADS = (0.0, 0.05) if FULL else (0.05,)
SIMULATED = {("native",): COLUMNS, tuple(STRATEGIES): STRATEGY_COLUMNS}
"""By the strategies of a study, the columns that are looked at."""


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize(("strategies", "columns"), SIMULATED.items(), ids=["native", "strategies"])
def test_95_percent_intervals_hold_the_truth(
    strategies: tuple[str, ...], columns: Columns, repeats: int, spread: float
) -> None:
    shape = Shape(repeats, strategies=strategies)
    studies = STUDIES // len(strategies)  # each has as many rows more
    shares = coverage(shape, spread, studies, columns=columns)
    assert shares.keys() == columns.keys()
    too_few = {column: own.mean() for column, own in shares.items() if own.mean() < 0.93}
    assert not too_few


def test_every_column_that_has_an_interval_is_simulated() -> None:
    ends = {
        (name, column.name)
        for name, entry in DERIVED.items()
        for column in entry.table.columns
        if column.name.endswith("_lo")
    }
    known = [*COLUMNS.values(), *STRATEGY_COLUMNS.values(), *STRUCK_COLUMNS.values()]
    assert ends == {(own.table, own.ends[0]) for own in known}


@pytest.mark.parametrize(("strategies", "columns"), SIMULATED.items(), ids=["native", "strategies"])
def test_the_simulated_study_is_known_without_chance(
    strategies: tuple[str, ...], columns: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    for within in ("WITHIN_STEPS", "WITHIN_STALLS", "WITHIN_BYTES"):
        monkeypatch.setattr(f"simulated_studies.{within}", 0.0)
    shape = Shape(repeats=2, strategies=strategies)
    collected = Simulation(shape, 0.0, np.random.default_rng(0)).collected()
    tables = derived(collected, [own.table for own in columns.values()])
    for column, own in columns.items():
        rows = with_chance(column, tables[own.table])
        assert len(rows)
        known = [own.truth(shape, row) for row in rows.to_dict("records")]
        assert rows[own.name].tolist() == pytest.approx(known)


@pytest.mark.parametrize("repeats", REPEATS)
def test_intervals_of_struck_runs_hold_the_truth(repeats: int) -> None:
    shape = Shape(repeats, faults=FAULTS)
    shares = coverage(shape, 0.05, STUDIES * (3 if FULL else 1), columns=STRUCK_COLUMNS)
    too_few = {column: own.mean() for column, own in shares.items() if own.mean() < 0.93}
    assert not too_few


def test_the_struck_runs_of_a_simulated_study_are_known_without_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for within in (
        "WITHIN_STEPS",
        "WITHIN_STALLS",
        "WITHIN_LOSSES",
        "WITHIN_USED",
    ):
        monkeypatch.setattr(f"simulated_studies.{within}", 0.0)
    shape = Shape(repeats=2, faults=FAULTS)
    collected = Simulation(shape, 0.0, np.random.default_rng(0)).collected()
    tables = derived(collected, [own.table for own in STRUCK_COLUMNS.values()])
    for own in STRUCK_COLUMNS.values():
        rows = tables[own.table]
        assert len(rows)
        known = [own.truth(shape, row) for row in rows.to_dict("records")]
        assert rows[own.name].tolist() == pytest.approx(known)


def test_more_repeats_make_narrower_intervals() -> None:
    few, many = (reaches(Shape(repeats), 0.05, studies=3) for repeats in (2, 5))
    assert few.keys() == COLUMNS.keys()
    for column, (lo, hi) in few.items():
        assert lo < many[column][0] < 0 < many[column][1] < hi
