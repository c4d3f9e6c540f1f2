"""Runs that other programs disturbed are marked in every figure of times: beside their points, in the legend and in the caption."""

from __future__ import annotations

import pandas as pd
import pytest
from figure_parts import caption_of
from figure_tables import Study

from ckptbench.analysis.tables.registry import COLLECTED
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit.disturbed import DISTURBED, MARK

OF_TIMES = ["overhead", *(name for name, entry in FIGURES.items() if {"runs", "machine"} <= set(entry.tables))]  # fmt: skip
STUDY = Study(
    frameworks=("pytorch",), ranks=(1, 2, 4), struck=("exponential mean_s=60",), deterministic=(True, False)
)  # fmt: skip
TABLES = STUDY.tables()


def disturbed(**of: object) -> dict[str, pd.DataFrame]:
    """The tables of a study in which all runs with these values were disturbed."""
    known = pd.concat([TABLES[name] for name in ("stall", "restore", "timeline")])
    struck = TABLES["goodput"].assign(run=[f"struck-{place}" for place in range(len(TABLES["goodput"]))])  # fmt: skip
    whole = TABLES["scaling"].assign(run=[f"whole-{place}" for place in range(len(TABLES["scaling"]))])  # fmt: skip
    struck = pd.concat([struck, whole.assign(interval="never", history="whole")])
    runs = pd.concat([known, struck]).drop_duplicates("run")
    hit = runs[list(of)].eq(pd.Series(of)).all(axis=1)
    rows = [{"run": run, "disturbed": hit_it, "by": ""} for run, hit_it in zip(runs["run"], hit, strict=True)]  # fmt: skip
    overhead = TABLES["overhead"].assign(disturbed=TABLES["overhead"]["ranks"].eq(of["ranks"]))
    return {**TABLES, "overhead": overhead, "runs": runs, "machine": COLLECTED["machine"].table.rows(rows)}  # fmt: skip


@pytest.mark.parametrize("name", OF_TIMES)
def test_disturbed_runs_are_marked_and_the_mark_is_in_legend_and_caption(name: str) -> None:
    figure = FIGURES[name].draw(disturbed(ranks=4))
    marks = [text for axes in figure.axes for text in axes.texts if text.get_gid() == DISTURBED]
    rows = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    assert marks or any(row.endswith(MARK) for row in rows)
    assert "disturbed" in [text.get_text() for each in figure.legends for text in each.get_texts()]
    assert f"{MARK} other programs" in caption_of(figure)


@pytest.mark.parametrize("name", OF_TIMES)
def test_without_a_disturbed_run_nothing_is_marked(name: str) -> None:
    figure = FIGURES[name].draw(disturbed(ranks=1000))
    assert not [text for axes in figure.axes for text in axes.texts if text.get_gid() == DISTURBED]
    assert MARK not in caption_of(figure)
    assert "disturbed" not in [text.get_text() for each in figure.legends for text in each.get_texts()]  # fmt: skip


def test_only_the_rows_of_disturbed_runs_are_marked() -> None:
    axes = FIGURES["stall"].draw(disturbed(ranks=2)).axes[0]
    rows = [label.get_text() for label in axes.get_yticklabels()]
    (mark,) = {text.get_position()[1] for text in axes.texts if text.get_gid() == DISTURBED}
    assert rows[int(mark)].startswith("2 ranks")


def test_a_disturbed_baseline_marks_what_is_compared_with_it() -> None:
    tables = disturbed(ranks=2, interval="never")
    assert MARK in caption_of(FIGURES["scaling"].draw(tables))
    assert MARK not in caption_of(FIGURES["stall"].draw(tables))
