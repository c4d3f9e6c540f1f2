"""What a checkpoint costs with another number of GPUs: by what storage does, and by a fit to several numbers of ranks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from test_advice import CHOICES, LLAMA

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.common.errors import ConfigError
from ckptbench.decide import formulas
from ckptbench.decide.advice import advice
from ckptbench.decide.decision import decide
from ckptbench.decide.given import read_given
from ckptbench.decide.inputs import fitted
from ckptbench.decide.projection import projected, projection, saving_of
from ckptbench.decide.storage import Storage
from ckptbench.report.answer.study import screen

GB = 1e9
SHARDED = Storage(
    state_bytes=98 * GB, gpus=8, rank_bytes_per_s=GB, all_bytes_per_s=40 * GB,
    write_fixed_s=2.0, down_fixed_s=60.0, down_per_gpu_s=0.1,
)  # fmt: skip
COSTS = {
    "title": "mine",
    "gpus": 8,
    "step_s": 1.0,
    "steps_per_epoch": 1000,
    "storage": {"state_gb": 98, "rank_gb_per_s": 1, "all_gb_per_s": 40, "write_fixed_s": 2, "down_fixed_s": 60, "down_per_gpu_s": 0.1},
    "strategies": [{"name": "save"}],
    "recoveries": [{"name": "restart"}],
}  # fmt: skip


def written(folder: Path, **changes: object) -> Path:
    path = folder / "costs.yaml"
    path.write_text(yaml.safe_dump({**COSTS, **changes}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("grows", "minutes", "lost", "load_s"),
    [(False, 21, 0.0080, 98 / 40), (True, 173, 0.061, 12544 / 40)],
)
def test_the_same_model_on_more_gpus_is_written_sooner_and_a_larger_one_much_later(
    tmp_path: Path, grows: bool, minutes: int, lost: float, load_s: float
) -> None:
    """12.25 GB a rank at 1 GB/s, storage of 40 GB/s: measured on 8 GPUs, asked for 1,024 that fail as those of Llama 3."""
    costs = read_given(written(tmp_path, storage={**COSTS["storage"], "grows": grows}))  # type: ignore[dict-item]
    told = advice(costs, [LLAMA], CHOICES).set_index("gpus")
    row = projected(costs.iloc[0].to_dict(), 1024)
    assert (row["stall_s"], row["durable_s"]) == pytest.approx((2 + load_s, 2 + load_s))
    assert row["down_s"] == pytest.approx(60 + 102.4 + load_s)
    assert round(told.loc[1024, "best_minutes"]) == minutes
    assert 1 - told.loc[1024, "goodput"] == pytest.approx(lost, abs=lost / 100)
    assert dict(told["projection"]) == {8: "", 1024: "storage", 16384: "storage"}


@pytest.mark.parametrize(
    ("shared_by", "seconds"), [(1, 2 + 98), (8, 2 + 98 / 8), (16, 2 + 98 / 16), (None, 2 + 98 / 40)]
)
def test_a_rank_writes_its_part_of_the_state(shared_by: int | None, seconds: float) -> None:
    """All of it, that of its group, or that of all 1,024."""
    storage = Storage.of(state_bytes=98 * GB, gpus=8, shared_by=shared_by, rank_bytes_per_s=GB, all_bytes_per_s=40 * GB, write_fixed_s=2.0)  # fmt: skip
    assert formulas.write_s(storage, 1024) == pytest.approx(seconds)


def test_nodes_share_their_way_to_the_storage_and_one_that_is_not_full_has_it_alone() -> None:
    storage = Storage(state_bytes=100 * GB, gpus=8, gpus_per_node=8, node_bytes_per_s=5 * GB)
    assert [formulas.write_s(storage, gpus) for gpus in (4, 8, 9, 16, 80)] == [20, 20, 10, 10, 2]


def test_what_is_written_in_the_background_is_copied_first() -> None:
    storage = Storage(state_bytes=80 * GB, gpus=8, rank_bytes_per_s=GB, copy_bytes_per_s=5 * GB, copy_fixed_s=0.5)  # fmt: skip
    saving = saving_of(storage, 8, asynchronous=True)
    assert (saving.stall_s, saving.durable_s) == (2.5, 12.5)
    assert saving_of(storage, 16, asynchronous=True).stall_s == 1.5


@pytest.mark.parametrize(("reads_once", "seconds"), [(False, 16 * 80 / 40), (True, 80 / 8)])
def test_what_every_rank_reads_is_read_from_the_storage_as_often(reads_once: bool, seconds: float) -> None:  # fmt: skip
    storage = Storage(state_bytes=80 * GB, gpus=8, shared_by=1, reads_once=reads_once, read_bytes_per_s=8 * GB, all_bytes_per_s=40 * GB)  # fmt: skip
    assert formulas.down_s(storage, 16) == pytest.approx(seconds)


def test_measured_times_hold_where_they_were_measured_and_change_as_the_storage_says(
    tmp_path: Path,
) -> None:
    measured = {"name": "save", "stall_s": {"value": 20, "lo": 18, "hi": 24}}
    costs = read_given(written(tmp_path, strategies=[measured, {"name": "behind", "stall_s": 1, "durable_s": 30, "slowdown_s": 3}]))  # fmt: skip
    save, behind = (costs[costs["strategy"] == name].iloc[0].to_dict() for name in ("save", "behind"))  # fmt: skip
    assert projected(save, 8) == save
    part = formulas.write_s(SHARDED, 1024) / formulas.write_s(SHARDED, 8)
    row = projected(save, 1024)
    assert [row[name] for name in ("stall_s", "stall_s_lo", "durable_s_hi")] == pytest.approx([20 * part, 18 * part, 24 * part])  # fmt: skip
    # Without a bandwidth for the copy, nothing shows how it changes.
    row = projected(behind, 1024)
    assert [row[name] for name in ("stall_s", "durable_s", "slowdown_s")] == pytest.approx([1, 30 * part, 3 * part])  # fmt: skip


def test_a_version_of_a_local_tier_takes_as_long_as_the_part_of_a_rank(tmp_path: Path) -> None:
    """It does not pass through the storage, of which the shared one is."""
    levels = {"name": "levels", "stall_s": 1, "durable_s": 8, "shared_every": 4, "shared_durable_s": 30}  # fmt: skip
    (row,) = read_given(written(tmp_path, strategies=[levels])).to_dict("records")
    there = projected(row, 16)
    assert there["durable_s"] == pytest.approx(8 / 2)
    times = formulas.write_s(SHARDED, 16) / formulas.write_s(SHARDED, 8)
    assert there["shared_durable_s"] == pytest.approx(30 * times)


def test_the_answer_says_what_a_save_stops_training_for_there(tmp_path: Path) -> None:
    costs = read_given(written(tmp_path))
    tables = decide(costs, [LLAMA], CHOICES)
    lines = screen(tables).lines
    stops = {line.cells[0]: line.cells[-1] for line in lines}
    assert (stops["8"], stops["1,024*"]) == ("14 s", "4.5 s")


def test_without_storage_costs_are_taken_as_constant_and_said_to_be(tmp_path: Path) -> None:
    given = {"storage": None, "strategies": [{"name": "save", "stall_s": 20}], "recoveries": [{"name": "restart", "down_s": 60}]}  # fmt: skip
    costs = read_given(written(tmp_path, **given))
    row = costs.iloc[0].to_dict()
    assert projected(row, 1024) == row
    assert list(advice(costs, [LLAMA], CHOICES)["projection"]) == ["", "constant", "constant"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"storage": None}, ("strategies[0].stall_s", "say in storage")),
        ({"storage": {"state_gb": 0}}, ("storage.state_gb", "greater than 0")),
        (
            {"storage": {"state_gb": 1, "rank_gb_per_s": -1}},
            ("storage.rank_gb_per_s", "greater than 0"),
        ),
        ({"storage": {"state_gb": 1, "shared_by": 0}}, ("storage.shared_by",)),
        ({"storage": {"rank_gb_per_s": 1}}, ("storage.state_gb",)),
    ],
)
def test_a_wrong_storage_is_refused_with_its_fields(
    tmp_path: Path, changes: dict[str, object], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_given(written(tmp_path, **changes))
    assert all(word in str(refused.value) for word in words)


def exactly(costs: pd.DataFrame, **values: Sequence[float]) -> pd.DataFrame:
    """The costs with these values, which are known exactly."""
    ends = {f"{name}{end}": own for name, own in values.items() for end in ("", "_lo", "_hi")}
    return costs.assign(**ends)


def measured(tmp_path: Path, **costs: float) -> pd.DataFrame:
    """At 2, 4 and 8 ranks: costs of a + b/N + cN."""
    (row,) = read_given(written(tmp_path)).to_dict("records")
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
