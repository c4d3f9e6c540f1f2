"""Results say of which config they are, and are taken for no other's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from figure_tables import empty_tables

from ckptbench.config.expansion import expand
from ckptbench.config.identity import (
    OF_DECISION,
    OF_RUNS,
    config_of,
    digest_of_runs,
    in_words,
    mark_path,
    marking,
    refusal,
)
from ckptbench.config.study import load_config
from ckptbench.report.answer.study import study_text

GOOD = {
    "matrix": {
        "framework": ["pytorch", "chainer"],
        "model": "small_cnn",
        "interval": [1, "4 steps"],
    }
}
STRUCK = {**GOOD["matrix"], "ranks": 2, "faults": ["none", {"listed": {"name": "late"}}]}


def digest(**content: Any) -> str:
    config = load_config({**GOOD, **content})
    return digest_of_runs(config, expand(config))


@pytest.mark.parametrize(
    "content",
    [
        {"repeats": 2},
        {"matrix": {**GOOD["matrix"], "ranks": 2}},
        {"training": {"learning_rate": 0.5}},
        {"checkpoints": {"keep_during_run": 3}},
    ],
    ids=str,
)
def test_another_config_has_another_digest(content: dict[str, Any]) -> None:
    assert digest(**content) != digest()


def test_a_list_of_failures_counts_where_a_cell_names_it() -> None:
    digests = {
        digest(matrix=STRUCK, failures={"late": [{"step": step, "rank": 0}]}) for step in (3, 4)
    }
    assert len(digests) == 2


def test_the_settings_of_a_dataset_count_where_a_cell_trains_on_it() -> None:
    for dataset, expected in (("synthetic", 2), ("digits", 1)):
        matrix = {**GOOD["matrix"], "dataset": dataset}
        made = ({"synthetic": {"train_samples": size}} for size in (640, 1280))
        assert len({digest(matrix=matrix, datasets=each) for each in made}) == expected


def test_what_changes_no_run_has_the_same_digest() -> None:
    turned = {
        name: value[::-1] if isinstance(value, list) else value
        for name, value in GOOD["matrix"].items()
    }
    for content in (
        {"matrix": turned},
        {"resume": True},
        {"decision": {"gpus": 64}},
        {"limits": {"run_minutes": 1}},
    ):
        assert digest(**content) == digest()


def test_the_words_name_files_and_all_that_is_not_the_default_in_two_lines() -> None:
    config = load_config({**GOOD, "training": {"learning_rate": 0.5}})
    assert in_words("3f2a91c7", config, [Path("config.yaml"), Path("a.yaml")], 24) == (
        "Config 3f2a91c7 (config.yaml and a.yaml): 24 runs; framework pytorch, chainer; model small_cnn; interval 1, 4 steps; learning_rate 0.5"
    )
    long = [Path("config" * 20), Path("study" * 20)]
    assert len(in_words("3f2a91c7", config, long, 24)) <= 190


def test_the_words_end_with_what_was_left_out_however_long_the_settings_are(
    tmp_path: Path,
) -> None:
    """An answer and a page end with them."""
    config, left_out = load_config(GOOD), "Left out: chainer, which needs Python 3.11: load it."
    words = in_words("3f2a91c7", config, [Path("study" * 60)], 24, left_out)
    assert words.splitlines()[1:] == [left_out]
    with marking(mark_path(tmp_path, OF_RUNS, "3f2a91c7"), words):
        pass
    assert f"\n{left_out}\n" in study_text(empty_tables(), config=config_of(tmp_path))


def test_a_report_of_another_config_is_refused_in_one_line(tmp_path: Path) -> None:
    answer, tables = tmp_path / "answer.txt", tmp_path / "tables"
    tables.mkdir()
    here, other = {OF_RUNS: "1" * 8, OF_DECISION: "2" * 8}, {OF_RUNS: "3" * 8, OF_DECISION: "2" * 8}
    told = refusal(tables, here, "Config 11111111 (a.yaml): 3 runs", answer)
    assert told is not None
    assert "answer.txt is missing, with which a report begins: start the workflow" in told
    answer.touch()
    told = refusal(tables, here, "Config 11111111 (a.yaml): 3 runs", answer)
    assert told is not None
    assert (
        "unfinished, or of an earlier version, and the report is to be of config 11111111" in told
    )
    for kind, mark in here.items():
        with marking(mark_path(tables, kind, mark), "Config 11111111 (a.yaml): 3 runs"):
            assert not mark_path(tables, kind, mark).exists(), "the tables are not written yet"
    assert refusal(tables, here, "Config 11111111 (a.yaml): 3 runs", answer) is None
    assert refusal(tables, other, "Config 33333333 (b.yaml): 4 runs", answer) == (
        f"{tables} is of config 11111111 (a.yaml), and the report is to be of config 33333333 (b.yaml): "
        "start the workflow with this config first, or name the other"
    )


def test_tables_are_of_one_config_at_a_time(tmp_path: Path) -> None:
    first, second = (mark_path(tmp_path, OF_RUNS, mark * 8) for mark in "12")
    for path in (first, second):
        with marking(path, f"of {path.name}"):
            assert not first.exists()
        assert config_of(tmp_path) == f"of {path.name}"
    with pytest.raises(OSError, match="full"), marking(first, "x"):
        raise OSError("full")
    assert config_of(tmp_path) == "", "nobody knows of which config half of the tables are"
