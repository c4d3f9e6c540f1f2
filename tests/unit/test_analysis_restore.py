"""Restarts: their phases, what they read from storage, and what is refused of a run that was killed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_folders import FakeRun, Kill, cell

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.derive import derive
from ckptbench.common.errors import RunFolderError
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.layout import final_path
from ckptbench.run.seal import seal

SIZE = 1024
"""Bytes of the files of a version."""


def killed(*kills: Kill, **fields: Any) -> FakeRun:
    once = "killed_inside" if kills[0].inside else "killed_between"
    faults = PluginSpec(once if len(kills) == 1 else "killed_thrice")
    cell_fields = {name: fields.pop(name) for name in ("ranks", "cache") if name in fields}
    return FakeRun(cell=cell(faults=faults, **cell_fields), kills=kills, proof=True, **fields)


def restore(folder: Path, run: FakeRun) -> pd.DataFrame:
    return derive(collect([run.write(folder)]))["restore"]


def test_a_restart_is_the_sum_of_its_phases(tmp_path: Path) -> None:
    row = restore(tmp_path, killed(Kill(0, 15))).iloc[0]

    names = ["launch", "meet", "import", "join", "data", "build", "evict", "load", "first_step"]
    phases = row[[f"{name}_s" for name in names]]
    assert phases.tolist() == pytest.approx([2.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 3.0, 0.1])
    assert row["total_s"] == pytest.approx(8.1)
    assert (row["attempt"], row["step"], row["epoch"], row["after"]) == (2, 10, 1.0, "between")


def test_every_restart_has_a_row_that_says_what_came_before_it(tmp_path: Path) -> None:
    run = killed(Kill(0, 11), Kill(0, 20, "begun"), Kill(0, 20, "written"))
    rows = restore(tmp_path, run)
    assert rows[["attempt", "step", "after"]].to_numpy().tolist() == [
        [2, 10, "between"],
        [3, 10, "begun"],
        [4, 10, "written"],
    ]


def test_a_cold_restart_does_not_count_the_eviction(tmp_path: Path) -> None:
    row = restore(tmp_path, killed(Kill(0, 15), cache="cold", read_bytes=SIZE)).iloc[0]
    assert (row["evict_s"], row["total_s"]) == pytest.approx((4.0, 8.1))


def test_the_rank_whose_restart_takes_the_longest_gives_the_times(tmp_path: Path) -> None:
    run = killed(Kill(0, 15), ranks=2, load_s=lambda rank, attempt: 4.0 - rank, read_bytes=100)
    row = restore(tmp_path, run).iloc[0]
    assert (row["load_s"], row["total_s"]) == pytest.approx((4.0, 9.1))
    assert (row["read_bytes"], row["bytes"]) == (200, SIZE)


@pytest.mark.parametrize(
    ("cache", "read_bytes", "shown"),
    [
        ("cold", SIZE, True),
        ("cold", 922, True),
        ("cold", 921, False),
        ("cold", 0, False),
        ("warm", 0, True),
        ("warm", 102, True),
        ("warm", 103, False),
        ("warm", SIZE, False),
    ],
)
def test_what_was_read_from_storage_shows_whether_a_restart_was_cold(
    tmp_path: Path, cache: str, read_bytes: int, shown: bool
) -> None:
    row = restore(tmp_path, killed(Kill(0, 15), cache=cache, read_bytes=read_bytes)).iloc[0]
    assert row["cold_shown"] == shown


@pytest.mark.parametrize(
    ("cache", "by_rank", "shown"),
    [
        ("cold", (SIZE, 0, SIZE, 0), True),
        ("cold", (SIZE // 2, SIZE // 2, 0, SIZE), True),
        ("cold", (SIZE, SIZE, 0, 0), False),
        ("warm", (0, 0, 0, 0), True),
        ("warm", (60, 0, 0, 60), True),
        ("warm", (60, 60, 0, 0), False),
    ],
)
def test_a_restart_is_cold_or_warm_where_it_is_so_on_every_node(
    tmp_path: Path, cache: str, by_rank: tuple[int, ...], shown: bool
) -> None:
    """What one node reads twice does not make up for what another still had in memory."""
    hosts = {"hosts": ["node1", "node1", "node2", "node2"]}
    run = killed(Kill(0, 15), ranks=4, cache=cache, manifest=hosts)
    raw = collect([run.write(tmp_path)])
    phases = raw["phases"]
    assert phases.groupby("node")["rank"].unique().map(list).to_dict() == {
        "node1": [0, 1],
        "node2": [2, 3],
    }
    of_load = phases["phase"] == "load"
    phases.loc[of_load, "read_bytes"] = phases.loc[of_load, "rank"].map(by_rank.__getitem__)
    row = derive(raw)["restore"].iloc[0]
    assert (row["read_bytes"], row["bytes"]) == (sum(by_rank), SIZE)
    assert row["cold_shown"] == shown


def test_without_the_kernels_counters_nothing_is_shown(tmp_path: Path) -> None:
    row = restore(tmp_path, killed(Kill(0, 15), cache="cold", read_bytes=None)).iloc[0]
    assert row[["read_bytes", "cold_shown"]].isna().all()
    assert row["bytes"] == SIZE


def test_one_rank_without_counters_leaves_the_bytes_of_all_unknown(tmp_path: Path) -> None:
    run = killed(Kill(0, 15), ranks=2, read_bytes=7)
    raw = collect([run.write(tmp_path)])
    first_rank = (raw["phases"]["phase"] == "load") & (raw["phases"]["rank"] == 0)
    raw["phases"].loc[first_rank, "read_bytes"] = pd.NA
    row = derive(raw)["restore"].iloc[0]
    assert row[["read_bytes", "cold_shown"]].isna().all()


def test_a_restart_that_did_not_reach_its_first_step_has_no_row(tmp_path: Path) -> None:
    raw = collect([killed(Kill(0, 15)).write(tmp_path)])
    raw["phases"] = raw["phases"][raw["phases"]["phase"] != "first_step"]
    assert derive(raw)["restore"].empty


def test_what_one_of_two_ranks_recorded_is_enough(tmp_path: Path) -> None:
    """The other is stopped when this one kills itself right after its first step."""
    run = killed(Kill(0, 15), ranks=2, load_s=lambda rank, attempt: 3.0 + rank)
    raw = collect([run.write(tmp_path)])
    phases = raw["phases"]
    raw["phases"] = phases[(phases["phase"] != "first_step") | (phases["rank"] == 0)]
    assert derive(raw)["restore"]["load_s"].tolist() == pytest.approx([3.0])


def test_only_a_restart_of_the_resume_proof_says_at_which_moment_the_kill_came(
    tmp_path: Path,
) -> None:
    listed = PluginSpec("listed", (("name", "x"),))
    run = FakeRun(cell=cell(faults=listed), kills=(Kill(0, 15),), proof=True)
    assert restore(tmp_path, run)["after"].tolist() == [""]


def test_a_run_of_the_resume_proof_does_not_tell_what_failures_cost(tmp_path: Path) -> None:
    assert derive(collect([killed(Kill(0, 15)).write(tmp_path)]))["goodput"].empty


def test_without_a_proof_the_step_is_not_known(tmp_path: Path) -> None:
    run = dataclasses.replace(killed(Kill(0, 15)), proof=False)
    row = restore(tmp_path, run).iloc[0]
    assert row[["step", "epoch"]].isna().all()
    assert row["total_s"] == pytest.approx(8.1)


def test_kills_are_in_the_table_of_failures(tmp_path: Path) -> None:
    run = killed(Kill(0, 11), Kill(1, 20, "begun"), Kill(0, 20, "synced"), ranks=2)
    failures = collect([run.write(tmp_path)])["failures"]
    assert failures[["attempt", "kind", "victim", "stage"]].to_numpy().tolist() == [
        [1, "kill", "rank 0", ""],
        [2, "kill", "rank 1", "begun"],
        [3, "kill", "rank 0", "synced"],
    ]


def test_a_run_that_began_anew_after_a_kill_is_refused(tmp_path: Path) -> None:
    folder = killed(Kill(0, 15)).write(tmp_path)
    trace = folder / "trace-0.jsonl"
    lines = [line for line in trace.read_text().splitlines(True) if '"name":"load"' not in line]
    trace.write_text("".join(lines))
    seal(folder, 1)
    with pytest.raises(RunFolderError, match=r'no "load" phase in the attempts \[2\]; remove'):
        collect([folder])


def test_a_proof_without_the_digests_of_the_end_is_refused(tmp_path: Path) -> None:
    folder = FakeRun(cell=cell(), proof=True).write(tmp_path)
    trace = folder / "trace-0.jsonl"
    lines = [line for line in trace.read_text().splitlines(True) if '"when":"end"' not in line]
    trace.write_text("".join(lines))
    seal(folder, 1)
    with pytest.raises(RunFolderError, match=r'trace-0.jsonl: has no "digest" event for the end'):
        collect([folder])


def test_a_proof_without_its_final_tensors_is_refused(tmp_path: Path) -> None:
    folder = FakeRun(cell=cell(), proof=True).write(tmp_path)
    final_path(folder, 0).unlink()
    seal(folder, 1)
    with pytest.raises(RunFolderError, match=r"final-0.npz: is not in the seal"):
        collect([folder])
