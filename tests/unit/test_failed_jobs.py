"""After failed jobs the workflow ends with what failed, why, and what to write into the config for the tables of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ckptbench import remedies
from ckptbench.matrix.cell import Cell
from ckptbench.study.config import load_config
from ckptbench.study.expansion import expand
from ckptbench.study.failed import MOST_SHOWN, NO_OTHER, FailedJob, advice

SMALL = {"model": "small_cnn", "batch_size": 8}
NEVER = {"never": [{"step": 3, "moment": "save", "rank": 1}]}


def study(matrix: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"matrix": {**SMALL, "framework": "pytorch", "ranks": 1, **matrix}, "repeats": 2, **more}


def told(content: dict[str, Any], failed: Sequence[FailedJob], results: Path) -> list[str]:
    config = load_config(content)
    cells = expand(config)
    for cell in cells:
        if not any(job.stops(cell) for job in failed):
            seal = results / "runs" / cell.id / "seal.json"
            seal.parent.mkdir(parents=True, exist_ok=True)
            seal.touch()
    return advice(failed, config, cells, results, [Path("mine.yaml")]).splitlines()


def left(content: dict[str, Any], lines: Sequence[str]) -> list[Cell]:
    """The cells of the study when the config was changed as the lines say."""
    entries = [yaml.safe_load(line[4:]) for line in lines if line.startswith("  - ")]
    drops = {line.split("include[")[1].split("]")[0] for line in lines if "drop include" in line}
    include = [each for i, each in enumerate(content.get("include", [])) if str(i) not in drops]
    changed = {**content, "include": include, "exclude": content.get("exclude", []) + entries}
    return expand(load_config(changed))


def runs(content: dict[str, Any], **fields: Any) -> list[FailedJob]:
    """A failed job for each run with these fields, in its repeat 0."""
    cells = [cell for cell in expand(load_config(content)) if cell.repeat == 0]
    chosen = [c for c in cells if all(str(getattr(c, k)) == str(v) for k, v in fields.items())]
    assert chosen
    return [FailedJob("train_cell", {"cell": cell.id}) for cell in chosen]


@pytest.mark.parametrize(
    ("matrix", "fields", "entry"),
    [
        ({"ranks": [1, 2], "interval": ["never", 1, "2 steps"]}, {"ranks": 2, "interval": "s2"}, '  - {ranks: 2, interval: "2 steps"}'),
        ({"framework": ["pytorch", "chainer"]}, {"framework": "chainer"}, "  - {framework: chainer}"),
        ({"strategy": ["native", {"deepfreeze": {"memory": 1}}]}, {"strategy": "deepfreeze_memory_1"}, None),
        ({"ranks": [1, 2]}, {"ranks": 2, "interval": "never"}, "  - {ranks: 2}"),
        ({"format": ["torch_save", "safetensors"], "deterministic": [True, False]}, {"format": "safetensors", "deterministic": "True"}, "  - {format: safetensors, deterministic: true}"),
    ],
)  # fmt: skip
def test_the_entry_drops_what_failed_with_what_needs_it_and_nothing_else(
    tmp_path: Path, matrix: dict[str, Any], fields: dict[str, Any], entry: str | None
) -> None:
    content = study(matrix)
    failed = runs(content, **fields)
    lines = told(content, failed, tmp_path)
    if entry is not None:
        assert [line for line in lines if line.startswith("  - ")] == [entry]
    gone = {cell for cell in expand(load_config(content)) if failed_or_needs(cell, failed)}
    assert set(left(content, lines)) == {*expand(load_config(content))} - gone
    number = len(left(content, lines))
    assert f"Then the study asks for {number} runs, and its tables are of these." in lines
    assert "in mine.yaml, add to `exclude:` (all repeats go):" in lines


def failed_or_needs(cell: Cell, failed: Sequence[FailedJob]) -> bool:
    ids = {job.wildcards["cell"] for job in failed}
    one = replace(cell, repeat=0)
    return not ids.isdisjoint((one.id, one.baseline.id, one.reference.id))


def test_a_run_that_an_entry_of_include_asks_for_is_dropped_there(tmp_path: Path) -> None:
    one = {"faults": {"listed": {"name": "never"}}, "ranks": 2, "interval": 1}
    content = study({"ranks": [1, 2], "interval": ["never", 1]}, failures=NEVER, include=[one])
    failed = runs(content, faults="listed_name_never")
    lines = told(content, failed, tmp_path)
    assert lines[1] == f"FAILED: {failed[0].name}"
    assert "in mine.yaml, drop include[0], which asks for what failed" in lines
    assert not [line for line in lines if line.startswith("  - ")]
    assert {cell.faults.name for cell in left(content, lines)} == {"none"}


def test_of_a_list_in_include_the_part_that_failed_is_named(tmp_path: Path) -> None:
    several = {"framework": "chainer", "ranks": [1, 2], "interval": 1}
    content = study({"interval": ["never", 1]}, include=[several])
    failed = runs(content, framework="chainer", ranks=2, interval="e1")
    lines = told(content, failed, tmp_path)
    assert "drop include[0], which asks for what failed, or leave {ranks: 2} out of its lists" in "\n".join(lines)  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "wildcards", "entry"),
    [
        ("create_environment", {"environment": "chainer"}, "  - {framework: chainer}"),
        ("prepare_dataset", {"dataset": "synthetic"}, "  - {dataset: synthetic}"),
    ],
)
def test_an_environment_or_a_dataset_that_cannot_be_made_stops_the_runs_that_need_it(
    tmp_path: Path, rule: str, wildcards: dict[str, str], entry: str
) -> None:
    matrix = {"framework": ["pytorch", "chainer"], "dataset": ["digits", "synthetic"]}
    content = study({**matrix, "interval": ["never", 1]})
    lines = told(content, [FailedJob(rule, wildcards)], tmp_path)
    assert lines[1] == f"FAILED: {rule} {next(iter(wildcards.values()))}"
    assert [line for line in lines if line.startswith("  - ")] == [entry]
    assert lines[3].startswith("8 of 16 runs are finished. They stay and are not repeated.")


def test_nothing_is_proposed_where_nothing_would_be_left(tmp_path: Path) -> None:
    content = study({"interval": ["never", 1]})
    for failed in (runs(content, interval="never"), [FailedJob("create_environment", {"environment": "data"})]):  # fmt: skip
        lines = told(content, failed, tmp_path / failed[0].rule)
        assert lines[-1].endswith(f"mend the cause and start the study again. {NO_OTHER}")
    assert lines[-1].startswith("0 of 4 runs are finished. Tables and figures need all runs")


@pytest.mark.parametrize("age_s", [None, 60.0])
def test_of_a_job_that_was_never_started_no_log_is_named(
    tmp_path: Path, age_s: float | None
) -> None:
    log, now = tmp_path / "draw.log", time.time()
    if age_s is not None:
        log.write_text("RunFolderError: of yesterday: mended since\n")
        os.utime(log, (now - age_s, now - age_s))
    lines = told(study({}), [FailedJob("draw_overhead", {}, (log,), now)], tmp_path)
    assert lines[1:3] == ["FAILED: draw_overhead", "    it has written no log: read the messages above"]  # fmt: skip


def test_a_figure_that_fails_takes_no_run_with_it(tmp_path: Path) -> None:
    log = tmp_path / "draw.log"
    log.write_text("reading\nRunFolderError: steps.parquet: not the table\n    more\n")
    lines = told(study({}), [FailedJob("draw_overhead", {}, (log,))], tmp_path)
    assert lines[1:4] == [
        "FAILED: draw_overhead",
        "    RunFolderError: steps.parquet: not the table",
        f"    its log: {log}",
    ]
    assert lines[-1].startswith("What is finished stays.")


def test_many_failed_jobs_are_counted(tmp_path: Path) -> None:
    jobs = [FailedJob("draw", {"figure": str(n)}) for n in range(MOST_SHOWN + 3)]
    lines = told(study({}), jobs, tmp_path)
    assert f"FAILED: draw {MOST_SHOWN - 1}" in lines
    assert "and 3 more jobs failed" in lines


def test_a_full_results_folder_is_named_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckptbench.study.failed.is_full", lambda place: True)
    lines = told(study({}), [FailedJob("decide", {}, (tmp_path / "gone.log",))], tmp_path)
    where = remedies.mount_of(tmp_path)
    assert lines[1].startswith(f"{tmp_path} is full: ")
    assert lines[1].endswith(f" MB are free on {where}. Free some, and start the study again.")


def test_a_cause_announces_no_lines_that_do_not_follow(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "LaunchError: ValueError: of mine; last lines of a/output.txt:\n    [output] x\n"
    )
    assert FailedJob("train_own", {}, (log,)).cause() == "LaunchError: ValueError: of mine"


def test_the_error_of_a_rank_is_told_with_that_of_its_launcher(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "[rank-1] rank 1: at work\nLaunchError: rank-1 ended with exit status 1; last lines:\n"
        "    [rank-1] rank 1: rank 1 died\n    [rank-1] rank 1: OSError: /x: No space left on device; free some\n"
    )
    assert FailedJob("train_cell", {}, (log,)).cause() == (
        "LaunchError: rank-1 ended with exit status 1; [rank-1] rank 1: OSError: /x: No space left on device; free some"
    )
