"""What a checkpoint costs with another number of GPUs: by a fit to several numbers of ranks, else the same."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_advice import CHOICES, LLAMA
from test_given_costs import written

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.decide.advice import advice
from ckptbench.decide.inputs import fitted
from ckptbench.decide.projection import projected, projection
from ckptbench.decide.user_costs import read_user_costs


def test_costs_of_one_number_of_gpus_are_taken_as_constant_and_said_to_be(tmp_path: Path) -> None:
    costs = read_user_costs(written(tmp_path))
    row = costs.iloc[0].to_dict()
    assert projected(row, 1024) == row
    assert list(advice(costs, [LLAMA], CHOICES)["projection"]) == ["", "constant", "constant"]


def exactly(costs: pd.DataFrame, **values: Sequence[float]) -> pd.DataFrame:
    """The costs with these values, which are known exactly."""
    ends = {f"{name}{end}": own for name, own in values.items() for end in ("", "_lo", "_hi")}
    return costs.assign(**ends)


def measured(tmp_path: Path, **costs: float) -> pd.DataFrame:
    """At 2, 4 and 8 ranks: costs of a + b/N + cN."""
    (row,) = read_user_costs(written(tmp_path)).to_dict("records")
    stalls = [costs["a"] + costs["b"] / ranks + costs["c"] * ranks for ranks in (2, 4, 8)]
    return exactly(pd.DataFrame([{**row, "ranks": ranks} for ranks in (2, 4, 8)]), stall_s=stalls)


ALIKE = (*(name for name in SYSTEM if name != "ranks"), "strategy", "recovery")


@pytest.mark.parametrize(("a", "b", "c"), [(2.0, 0.0, 0.5), (1.0, 12.0, 0.0), (0.0, 3.0, 0.25)])
def test_costs_that_differ_between_numbers_of_ranks_are_fitted(
    tmp_path: Path, a: float, b: float, c: float
) -> None:
    costs = measured(tmp_path, a=a, b=b, c=c)
    growths = fitted(costs, ALIKE)
    for row, growth in zip(costs.to_dict("records"), growths, strict=True):
        assert projected({**row, "growth": growth}, row["ranks"])["stall_s"] == row["stall_s"]
        there = projected({**row, "growth": growth}, 100)
        assert there["stall_s"] == pytest.approx(a + b / 100 + 100 * c)
        assert there["down_s"] == row["down_s"]
        assert projection({**row, "growth": growth}) == "fit"


def test_costs_whose_intervals_have_a_number_in_common_are_not_fitted(tmp_path: Path) -> None:
    costs = measured(tmp_path, a=2.0, b=0.0, c=0.1)
    wide = costs.assign(stall_s_lo=costs["stall_s"] - 0.4, stall_s_hi=costs["stall_s"] + 0.4)
    assert fitted(wide, ALIKE) == ["", "", ""]
    narrow = costs.assign(stall_s_lo=costs["stall_s"] - 0.2, stall_s_hi=costs["stall_s"] + 0.2)
    assert set(json.loads(fitted(narrow, ALIKE)[0])["fit"]) == {"stall_s"}
    once = costs.assign(stall_s_lo=math.nan, stall_s_hi=math.nan)
    assert fitted(once, ALIKE) == ["", "", ""]


def test_two_numbers_of_ranks_are_too_few_for_three_terms(tmp_path: Path) -> None:
    costs = measured(tmp_path, a=2.0, b=0.0, c=0.1)
    assert fitted(costs.iloc[:2], ALIKE) == ["", ""]
    apart = costs.assign(strategy=["one", "two", "three"])
    assert fitted(apart, ALIKE) == ["", "", ""]
    assert fitted(costs.iloc[:0], ALIKE) == []


def test_a_save_of_shards_costs_a_constant_and_a_part_of_each_rank(tmp_path: Path) -> None:
    """However the times of replicas grow: two numbers are enough, and noise gives no rank a cost of its own."""
    costs = measured(tmp_path, a=1.0, b=12.0, c=0.0).assign(framework="pytorch_fsdp")
    for rows in (costs, costs.iloc[:2]):
        (numbers,) = {tuple(json.loads(growth)["fit"]["stall_s"]) for growth in fitted(rows, ALIKE)}
        assert numbers == pytest.approx((1.0, 12.0, 0.0))
    noisy = exactly(costs, stall_s=[7.0, 4.0, 4.5], down_s=[10.0, 20.0, 40.0])
    told = json.loads(fitted(noisy, ALIKE)[0])["fit"]
    assert told["stall_s"][2] == 0
    assert told["down_s"][2] == pytest.approx(5)
    replicas = json.loads(fitted(noisy.assign(framework="pytorch"), ALIKE)[0])["fit"]
    assert replicas["stall_s"][2] > 0


def test_no_cost_of_a_fit_is_below_zero(tmp_path: Path) -> None:
    """Least squares alone would take more from the constant than there is."""
    costs = exactly(measured(tmp_path, a=1.0, b=0.0, c=0.0), stall_s=[1.0, 2.0, 9.0])
    (numbers,) = {tuple(json.loads(growth)["fit"]["stall_s"]) for growth in fitted(costs, ALIKE)}
    assert np.min(numbers) >= 0
    assert projected({**costs.iloc[0].to_dict(), "growth": fitted(costs, ALIKE)[0]}, 1)["stall_s"] > 0  # fmt: skip
