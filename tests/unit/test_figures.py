"""Each figure says what its tables hold, where it was measured, and is drawn the same every time."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from figure_parts import SMALL, caption_of, titles
from figure_tables import Study, empty_tables
from test_figures_proof import BASELINE, WITH_CHECKPOINTS

from ckptbench.analysis.tables.registry import DECIDED, DERIVED
from ckptbench.analysis.tables.store import write_tables
from ckptbench.common.errors import RunFolderError
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.report import figures
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.files import write_figure
from scripts.pages.tables import captions

REPOSITORY = Path(__file__).parents[2]
OF_RUNS = [name for name, entry in FIGURES.items() if not set(entry.tables) & set(DECIDED)]
"""Figures of what was measured. test_figures_decision.py has those of the decision."""


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_the_tables_it_names_says_where_when_and_how_often_they_were_measured(name: str) -> None:  # fmt: skip
    text = caption_of(FIGURES[name].draw({table: SMALL[table] for table in FIGURES[name].tables}))
    assert "GPU" not in text
    if name in OF_RUNS:
        assert "Measured on CPU (AMD EPYC 7B13, 2 cores, ext4), 2026-01-02, 3 repeats." in text
        assert "ResNet-50, digits" in text


@pytest.mark.parametrize("name", FIGURES)
def test_a_study_without_runs_is_said_in_words(name: str) -> None:
    figure = FIGURES[name].draw(empty_tables())
    assert not figure.axes
    (text,) = figure.findobj(lambda artist: artist.get_gid() == "nothing")
    assert "to show" in text.get_text().replace("\n", " ")


@pytest.mark.parametrize("name", ["overhead", "stall", "scaling"])
def test_cpu_and_gpu_never_share_a_panel(name: str) -> None:
    study = Study(frameworks=("pytorch",), hardware=("cpu", "gpu"))
    figure = FIGURES[name].draw(study.tables())
    assert all(("CPU" in title) != ("GPU" in title) for title in titles(figure))
    assert "Measured on CPU (" in caption_of(figure)
    assert "GPU Tesla V100" in caption_of(figure)


def test_a_figure_of_cpu_rows_does_not_mention_the_gpu_of_other_runs() -> None:
    both = Study(hardware=("cpu", "gpu")).tables()
    figure = FIGURES["overhead"].draw({**both, "overhead": SMALL["overhead"]})
    assert "GPU" not in caption_of(figure)


def test_rows_of_an_unknown_machine_are_refused() -> None:
    tables = {**SMALL, "provenance": Study(hardware=("gpu",)).tables()["provenance"]}
    with pytest.raises(RunFolderError, match="no machine for rows measured on cpu"):
        FIGURES["overhead"].draw(tables)


@pytest.mark.parametrize("name", ["overhead", "stall"])
def test_models_are_apart_and_frameworks_in_their_order(name: str) -> None:
    figure = FIGURES[name].draw(Study(ranks=(2,), models=("resnet50", "vgg16")).tables())
    frameworks = ("Chainer", "PyTorch", "TensorFlow")
    assert titles(figure) == [f"{f}, {m}" for f in frameworks for m in ("ResNet-50", "VGG-16")]


def test_a_script_writes_the_same_pdf_png_and_caption_every_time(tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", Study(frameworks=("pytorch",)).tables())
    for place in ("one", "two"):
        write_figure("overhead", tmp_path / "tables", tmp_path / place / "overhead.v1")
    for ending in ("pdf", "png", "txt"):
        first, second = (tmp_path / place / f"overhead.v1.{ending}" for place in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()


def test_the_verb_says_in_a_line_each_which_tables_are_missing(tmp_path: Path) -> None:
    verb = [sys.executable, "-m", "ckptbench.workflow", "draw-figure", "sizes"]
    where = ["--tables", str(tmp_path), "--output-stem", str(tmp_path / "sizes")]
    done = subprocess.run(
        [*verb, *where, "--log", str(tmp_path / "log")],
        env={"PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == len(FIGURES["sizes"].tables)
    assert all(
        f"{table}.parquet" in line
        for table, line in zip(FIGURES["sizes"].tables, lines, strict=True)
    )
    assert (tmp_path / "log").read_text() == done.stderr


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_reads_derived_tables_curves_and_which_runs_were_disturbed(name: str) -> None:
    curves = ("steps", "epochs", "evaluations") if name == "determinism" else ()
    assert set(FIGURES[name].tables) <= {*DERIVED, *DECIDED, *curves, "runs", "machine"}


def test_the_report_has_captions_of_the_tables_that_it_shows() -> None:
    captioned = {path.stem for path in REPOSITORY.glob("workflow/report/table_*.rst")}
    assert captioned == {f"table_{name}" for name in captions()}
    assert {*DERIVED, *DECIDED} <= captions().keys()


def drawn_of(**lists: list[object]) -> set[str]:
    """The figures of a study that varies these fields of a cell, with baselines."""
    combinations = [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]
    cells = [dataclasses.replace(base, **own) for base in (BASELINE, WITH_CHECKPOINTS) for own in combinations]  # fmt: skip
    return {name for name, entry in FIGURES.items() if entry.is_of(cells)}


def test_a_figure_is_drawn_only_where_it_says_something() -> None:
    always = {"overhead", "stall", "sizes", "timeline", "advice"}
    few = drawn_of(ranks=[1, 2], epochs=[2])
    assert always <= few
    assert not few & {"strategies", "scaling"}
    assert "scaling" in drawn_of(ranks=[1, 2, 4], epochs=[2])
    other = dataclasses.replace(
        WITH_CHECKPOINTS, strategy=PluginSpec("async"), format="safetensors"
    )
    cells = [BASELINE, WITH_CHECKPOINTS, other]
    assert FIGURES["strategies"].is_of(cells)
    assert not FIGURES["strategies"].is_of(cells[:2])
    assert not any(entry.is_of([]) for entry in FIGURES.values())


@pytest.mark.parametrize("entry", ['FIGURE: dict[str, str] = {"title": "Mine"}', 'FIGURE = {"title": "Mine"}  # mine'])  # fmt: skip
def test_a_module_whose_entry_cannot_be_read_is_an_error(tmp_path: Path, entry: str) -> None:
    """It would be no figure otherwise, without a word."""
    module = tmp_path / "mine.py"
    module.write_text(f"{entry}\n\n\ndef draw(tables): ...\n")
    with pytest.raises(ValueError, match=r"mine.py draws, but has no line `FIGURE = {`"):
        list(figures._entry(module))
