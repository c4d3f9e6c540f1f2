"""Sizes, scaling, stalls, training curves and provenance of runs whose answers are known."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from run_folders import HOST, FakeRun, cell

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.stall import parts_of_stall
from ckptbench.analysis.derive import derive
from ckptbench.analysis.provenance import caption_facts
from ckptbench.analysis.tables.columns import SETUP, SYSTEM
from ckptbench.analysis.tables.curves import curves
from ckptbench.analysis.tables.registry import EVERY, TABLES
from ckptbench.matrix.plugin_spec import PluginSpec
from scripts.pages.tables import document

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs" / "tables.md"


def tables(folder: Path, *runs: FakeRun) -> dict[str, pd.DataFrame]:
    return derive(collect([run.write(folder) for run in runs]))


def test_sizes_compare_what_was_written_with_what_the_state_must_have(tmp_path: Path) -> None:
    row = tables(tmp_path, FakeRun(cell=cell()), FakeRun(cell=cell(repeat=1)))["sizes"].iloc[0]

    assert row[["versions", "files", "bytes", "main_bytes", "rank_bytes"]].tolist() == [
        4,
        2,
        1024,
        1000,
        24,
    ]
    assert row["constant"]
    assert row["ratio"] == pytest.approx(1024 / (600 + 300 + 100))


def test_each_optimizer_has_sizes_of_its_own(tmp_path: Path) -> None:
    runs = [FakeRun(cell=cell(optimizer=optimizer)) for optimizer in ("sgd", "adamw")]
    sizes = tables(tmp_path, *runs)["sizes"]
    assert sorted(sizes["optimizer"]) == ["adamw", "sgd"]
    assert set(sizes["versions"]) == {2}


def test_sizes_that_vary_say_so(tmp_path: Path) -> None:
    larger = FakeRun(cell=cell(repeat=1), files={"model.pt": 2000, "rank-0.safetensors": 24})
    row = tables(tmp_path, FakeRun(cell=cell()), larger)["sizes"].iloc[0]
    assert not row["constant"]
    assert (row["bytes_min"], row["bytes_max"]) == (1024, 2024)


def test_throughput_counts_the_images_of_all_ranks(tmp_path: Path) -> None:
    def run(ranks: int, step_s: float, repeat: int = 0) -> FakeRun:
        slow_start = {0: 50.0}
        return FakeRun(
            cell=cell("never", ranks=ranks, repeat=repeat),
            warmup_steps=1,
            step_s=lambda rank, step: slow_start.get(step, step_s),
        )

    scaling = tables(tmp_path, run(2, 0.1), run(4, 0.125), run(4, 0.125, repeat=1))["scaling"]

    assert scaling["ranks"].tolist() == [2, 4]
    assert scaling["repeats"].tolist() == [1, 2]
    assert scaling["steps"].tolist() == [19, 38]
    assert scaling["samples_per_s"].tolist() == pytest.approx([160.0, 256.0])
    assert scaling["reference_ranks"].tolist() == [2, 2]
    assert scaling["efficiency"].tolist() == pytest.approx([1.0, 0.8])
    assert scaling["efficiency_lo"].tolist() == pytest.approx([1.0, 0.8])


def test_the_cost_of_a_checkpoint_is_its_mean_over_all_repeats(tmp_path: Path) -> None:
    def stall_s(rank: int, step: int) -> float:
        return {10: 0.2, 20: 0.4, 30: 9.0}[step]

    runs = [FakeRun(cell=cell(repeat=repeat, epochs=3), stall_s=stall_s) for repeat in range(2)]
    cost = tables(tmp_path, *runs)["checkpoint_cost"].iloc[0]

    assert (cost["repeats"], cost["checkpoints"]) == (2, 6)
    assert cost["stall_s"] == pytest.approx(3.2)
    assert cost["durable_s"] == pytest.approx(3.2 * 0.875)
    assert (cost["stall_s_lo"], cost["stall_s_hi"]) == pytest.approx((3.2, 3.2))
    assert cost["in_run"] == pytest.approx(9.6 / 3.0)


@pytest.mark.parametrize(
    ("cores", "nodes", "ranks", "times"),
    [(2, 1, 2, 1.0), (4, 1, 2, 1.0), (3, 1, 2, 2 / 3), (2, 1, 4, 1.0), (2, 2, 2, 2.0)],
)
def test_more_ranks_on_the_same_cores_are_not_allowed_more(
    tmp_path: Path, cores: int, nodes: int, ranks: int, times: float
) -> None:
    def run(ranks: int, nodes: int) -> FakeRun:
        hosts = [f"node{1 + rank % nodes}" for rank in range(ranks)]
        manifest = {"host": {**HOST, "cores": cores}, "hosts": hosts}
        return FakeRun(cell=cell("never", ranks=ranks), manifest=manifest)

    one, more = tables(tmp_path, run(1, 1), run(ranks, nodes))["scaling"].to_dict("records")
    assert one["allowed_samples_per_s"] == pytest.approx(one["samples_per_s"])
    assert more["allowed_samples_per_s"] == pytest.approx(times * one["samples_per_s"])


def test_nothing_is_known_of_what_a_gpu_allows(tmp_path: Path) -> None:
    run = FakeRun(cell=cell("never"), manifest={"measured_on": "gpu", "device": "V100"})
    assert tables(tmp_path, run)["scaling"]["allowed_samples_per_s"].isna().all()


def test_an_efficiency_is_as_uncertain_as_both_throughputs(tmp_path: Path) -> None:
    def run(ranks: int, repeat: int) -> FakeRun:
        seconds = 0.1 * np.exp([-0.01, 0.01][repeat])
        return FakeRun(
            cell=cell("never", ranks=ranks, repeat=repeat), step_s=lambda rank, step: seconds
        )

    one, two = tables(tmp_path, *(run(ranks, repeat) for ranks in (1, 2) for repeat in (0, 1)))[
        "scaling"
    ].to_dict("records")
    # Logarithms -0.01 and 0.01, twice: a variance of 0.0002 with one degree of freedom each.
    half = 4.3027 * math.sqrt(0.0002 / 2)
    assert math.log(one["samples_per_s_hi"] / one["samples_per_s"]) == pytest.approx(half, rel=1e-4)
    assert (one["efficiency_lo"], one["efficiency_hi"]) == (1.0, 1.0)
    assert math.log(two["efficiency_hi"]) == pytest.approx(half * math.sqrt(2), rel=1e-4)
    assert math.log(two["efficiency_lo"]) == pytest.approx(-half * math.sqrt(2), rel=1e-4)


def test_the_stall_of_a_setup_is_the_mean_of_its_runs_means(tmp_path: Path) -> None:
    stalls_s = [{10: 0.1, 20: 0.2, 30: 0.9}, {10: 0.1, 20: 0.2, 30: 0.3}]
    runs = [
        FakeRun(cell=cell(repeat=repeat, epochs=3), stall_s=lambda rank, step, s=own: s[step])
        for repeat, own in enumerate(stalls_s)
    ]
    cost = tables(tmp_path, *runs)["checkpoint_cost"].iloc[0]
    assert cost["stall_s"] == pytest.approx(0.3)
    assert cost["durable_s"] == pytest.approx(0.3 * 0.875)
    half = 12.7062 * math.log(0.4 / 0.2) / 2
    assert cost["stall_s_hi"] == pytest.approx(0.3 * math.exp(half), rel=1e-3)


def test_the_first_checkpoints_of_a_run_are_kept_apart_from_the_steady_state(
    tmp_path: Path,
) -> None:
    def stall_s(rank: int, step: int) -> float:
        return 0.9 if step <= 8 else 0.3

    runs = [
        FakeRun(cell=cell("s4", repeat=repeat), stall_s=stall_s, keep=1, warmup_steps=5)
        for repeat in range(2)
    ]
    found = tables(tmp_path, *runs)
    stall, cost = found["stall"], found["checkpoint_cost"].iloc[0]
    assert stall["place"].tolist() == [1, 2, 3, 4, 5] * 2
    assert stall["steady"].tolist() == [False, False, True, True, True] * 2
    assert cost["steady"]
    assert cost["checkpoints"] == 6
    assert cost["stall_s"] == pytest.approx(0.3)


def test_where_a_repeat_never_reaches_the_steady_state_the_cost_is_that_of_all_and_says_so(
    tmp_path: Path,
) -> None:
    stalls_s = {10: 0.9, 20: 0.3}
    run = FakeRun(cell=cell(), stall_s=lambda rank, step: stalls_s[step], keep=1)
    found = tables(tmp_path, run)
    cost, overhead = found["checkpoint_cost"].iloc[0], found["overhead"].iloc[0]
    assert not cost["steady"]
    assert cost["checkpoints"] == 2
    assert cost["stall_s"] == pytest.approx(0.6)
    assert pd.isna(overhead["in_run_steady"])


def test_a_stall_is_its_slowest_rank_with_the_parts_of_the_writing_one(tmp_path: Path) -> None:
    def stall_s(rank: int, step: int) -> float:
        return (1.6, 2.0)[rank]

    stall = tables(tmp_path, FakeRun(cell=cell(ranks=2), stall_s=stall_s))["stall"]

    assert stall["step"].tolist() == [10, 20]
    assert stall["stall_s"].tolist() == pytest.approx([2.0, 2.0])
    names = ["write_s", "sync_s", "checksum_s", "commit_s", "wait_s"]
    parts = stall[names]
    assert parts.iloc[0].tolist() == pytest.approx([0.8, 0.3, 0.1, 0.2, 0.6])
    assert parts.sum(axis=1).tolist() == pytest.approx([2.0, 2.0])
    assert parts_of_stall(stall)[names].equals(parts)


def test_the_parts_of_a_stall_add_up_to_it_where_training_waits_for_a_removal(
    tmp_path: Path,
) -> None:
    run = FakeRun(cell=cell(), stall_s=lambda rank, step: 1.6, hold_s={"removal": 0.4, "end": 0.8})
    stall = tables(tmp_path, run)["stall"]
    assert stall[["stall_s", "wait_s", "removal_hold_s"]].iloc[0].tolist() == pytest.approx([2.0, 0.2, 0.4])  # fmt: skip
    assert parts_of_stall(stall).sum(axis=1).tolist() == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize("slowest", [0, 1])
def test_write_and_sync_of_a_save_behind_training_are_no_parts_of_its_stall(
    tmp_path: Path, slowest: int
) -> None:
    behind = cell(ranks=2, strategy=PluginSpec("async"), format="safetensors")
    holds_s = {"update": 0.01, "save": 0.02, "removal": 0.04, "end": 5.0}
    run = FakeRun(
        cell=behind,
        stall_s=lambda rank, step: 1.0 if rank == slowest else 0.1,
        durable_s=7.0,
        hold_s=holds_s,  # of rank 0
    )
    stall = tables(tmp_path, run)["stall"]

    assert not stall["blocking"].any()
    held_s = [0.01, 0.04] if slowest == 0 else [0.0, 0.0]
    names = ["capture_s", "wait_s", "update_hold_s", "removal_hold_s"]
    parts = parts_of_stall(stall)
    assert parts[names].iloc[0].tolist() == pytest.approx([1.0, 0.0, *held_s])
    assert parts.drop(columns=names).iloc[0].tolist() == [0.0] * 4
    assert parts.sum(axis=1).tolist() == pytest.approx(stall["stall_s"].tolist())
    whole_s = stall[["write_s", "sync_s", "checksum_s", "commit_s"]].sum(axis=1)
    assert whole_s.tolist() == pytest.approx([7.0, 7.0])


def test_the_slowest_rank_is_the_one_that_is_blocked_the_longest(tmp_path: Path) -> None:
    """Rank 0 waits later, before the next save."""
    behind = cell(ranks=2, strategy=PluginSpec("async"), format="safetensors")
    stalls: Any = {"stall_s": lambda rank, step: (1.0, 1.1)[rank], "hold_s": {"save": 0.5}}
    stall = tables(tmp_path, FakeRun(cell=behind, durable_s=7.0, **stalls))["stall"]
    assert stall[["stall_s", "save_hold_s"]].iloc[0].tolist() == pytest.approx([1.0, 0.5])


def test_a_resumed_run_is_in_the_training_curves_and_in_no_timing(tmp_path: Path) -> None:
    found = tables(
        tmp_path, FakeRun(cell=cell(), attempts=2), FakeRun(cell=cell("never"), attempts=2)
    )
    assert len(curves(found, found["runs"]["run"])) == 4
    for name in ("overhead", "scaling", "checkpoint_cost", "stall"):
        assert found[name].empty


def curve(folder: Path, run: FakeRun) -> pd.DataFrame:
    return curves(collect([run.write(folder)]), [run.cell.id])


def test_losses_are_means_over_ranks_and_the_test_set(tmp_path: Path) -> None:
    run = FakeRun(cell=cell(ranks=2), loss=lambda rank, step: float(step + 10 * rank))
    training = curve(tmp_path, run)
    assert training["training_loss"].tolist() == pytest.approx([9.5, 19.5])
    # Two shards of 10 samples: loss sums 20 and 21, 4 and 5 correct.
    assert training["test_loss"].tolist() == pytest.approx([41 / 20] * 2)
    assert training["test_accuracy"].tolist() == pytest.approx([9 / 20] * 2)


def test_without_evaluation_there_is_no_test_loss(tmp_path: Path) -> None:
    training = curve(tmp_path, FakeRun(cell=cell(), evaluates=False))
    assert training["training_loss"].notna().all()
    assert training[["test_loss", "test_accuracy"]].isna().all(axis=None)


def test_a_caption_says_where_when_and_how_often(tmp_path: Path) -> None:
    runs = [FakeRun(cell=cell(repeat=repeat)) for repeat in range(3)]
    assert caption_facts(tables(tmp_path, *runs)["provenance"]) == (
        "Measured on CPU (AMD EPYC, 2 cores, ext4), 2026-01-02, 3 repeats"
    )


def test_a_caption_says_over_how_many_nodes_runs_were_spread(tmp_path: Path) -> None:
    spread = FakeRun(cell=cell(ranks=2), manifest={"hosts": ["node1", "node2"]})
    found = tables(tmp_path, FakeRun(cell=cell()), spread)["provenance"]
    assert ", on up to 2 nodes a run, 2026-01-02, 1 repeat" in caption_facts(found)


def test_a_caption_tells_machines_apart_and_admits_changed_source(tmp_path: Path) -> None:
    on_gpu = {
        "measured_on": "gpu",
        "device": "Tesla V100",
        "host": {**HOST, "host": "node2", "cores": 1, "checkpoint_file_system": "lustre"},
        "source": {"revision": None, "dirty": True},
        "ended": "2026-01-05T00:00:00+00:00",
        "versions": {"numpy": "2.1.0"},
    }
    runs = [FakeRun(cell=cell()), FakeRun(cell=cell(repeat=1))]
    found = tables(tmp_path, *runs, FakeRun(cell=cell("never"), manifest=on_gpu))["provenance"]

    assert found["measured_on"].tolist() == ["cpu", "gpu"]
    assert found["runs"].tolist() == [2, 1]
    assert found["versions"].tolist() == ['{"numpy": "2.0.0"}', '{"numpy": "2.1.0"}']
    assert found["revision"].isna().tolist() == [False, True]
    assert caption_facts(found) == (
        "Measured on CPU (AMD EPYC, 2 cores, ext4) and GPU Tesla V100 (AMD EPYC, 1 core, lustre), "
        "2026-01-02 to 2026-01-05, 1 to 2 repeats, source with uncommitted changes"
    )


def test_of_nothing_every_table_is_empty_with_its_columns() -> None:
    raw = collect([])
    found = derive(raw)
    assert list(found) == list(TABLES)
    for name, entry in TABLES.items():
        assert found[name].columns.tolist() == entry.table.names
        assert found[name].empty
    assert caption_facts(found["provenance"]) == "Nothing was measured"


def test_baselines_alone_give_no_costs(tmp_path: Path) -> None:
    found = tables(tmp_path, FakeRun(cell=cell("never")))
    for name in ("overhead", "sizes", "checkpoint_cost", "stall"):
        assert found[name].empty
    assert len(found["scaling"]) == 1


def test_every_table_has_the_types_of_its_schema(tmp_path: Path) -> None:
    raw = collect([FakeRun(cell=cell()).write(tmp_path)])
    empty_raw = collect([])
    empty = derive(empty_raw)
    for name, frame in derive(raw).items():
        pd.testing.assert_series_equal(frame.dtypes, empty[name].dtypes)


@pytest.mark.parametrize("name", TABLES)
def test_the_registry_finds_every_table_under_its_own_name(name: str) -> None:
    assert TABLES[name].table.name == name


@pytest.mark.parametrize("name", EVERY)
def test_the_page_on_tables_names_every_column_of_a_table(name: str) -> None:
    section = document().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    heading, _, lines = section.strip().partition("\n")
    heading = heading.rpartition(" By ")[2]
    bundles = {"setup": SETUP, "system": SYSTEM}
    without = _with_parts(re.findall(r"`(\w+)`", (re.search(r"\(without (.*?)\)", heading) or [""])[0]))  # fmt: skip
    named = {each for word in re.findall(r"\*(\w+)\*", heading) for each in bundles[word]}
    named = (named - without) | (_with_parts(re.findall(r"`(\w+)`", heading)) - without)
    for line in re.findall(r"^- (`[^:]*)", lines, re.MULTILINE):
        columns = re.findall(r"`(\w+)`", line)
        named |= set(columns)
        if "±" in line:
            named |= {f"{columns[0]}_{end}" for end in ("lo", "hi")}
    assert named == set(EVERY[name].table.names)
    shared = document().partition("# Columns of several tables\n")[2].partition("\n# ")[0]
    explained = set(re.findall(r"^- `(\w+)`", shared, re.MULTILINE))
    explained |= set(re.findall(r"`(\w+)`", "".join(re.findall(r"^- (.*?): ", lines, re.MULTILINE))))  # fmt: skip
    assert set(re.findall(r"`(\w+)`", heading)) <= explained


def _with_parts(names: list[str]) -> set[str]:
    """`strategy` stands for `strategy_name` and `strategy_options`, too."""
    parts = {f"{name}_{part}" for name in names for part in ("name", "options")}
    return {*names} | (parts & set(SETUP))


def test_the_loss_of_a_run_that_diverged_is_not_a_number(tmp_path: Path) -> None:
    def loss(rank: int, step: int) -> float:
        return math.nan if (rank, step) == (1, 5) else 1.0

    training = curve(tmp_path, FakeRun(cell=cell(ranks=2), loss=loss))
    assert training["training_loss"].isna().tolist() == [True, False]
