"""The files that a verb runs are found from its imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ckptbench.analysis.tables.registry import COLLECTED, DERIVED
from ckptbench.config.sources import sources_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("verb", "modules"),
    [
        ("collect_runs", [entry.module for entry in COLLECTED.values()]),
        ("analyse", [entry.module for entry in DERIVED.values()]),
        ("draw_figure", ["report.figures.stall", "analysis.cost.stall"]),
    ],
)
def test_what_is_found_is_all_that_is_imported(
    verb: str, modules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python itself says which modules of the package it has loaded."""
    named = ["workflow.__main__", f"workflow.{verb}", *modules]
    loaded = subprocess.run(
        [sys.executable, "-c", PROGRAM, *named],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.split()
    monkeypatch.chdir(ROOT)
    found = sources_of(named)
    assert len(loaded) > 10
    assert set(loaded) <= set(found)
    assert all(Path(path).is_file() for path in found)


PROGRAM = """
import importlib, sys
from pathlib import Path
for name in sys.argv[1:]:
    importlib.import_module(f"ckptbench.{name}")
for name, module in sys.modules.items():
    if name.partition(".")[0] == "ckptbench":
        print(Path(module.__file__).relative_to(Path.cwd()))
"""


def test_what_lies_beside_a_module_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    figure = sources_of(["workflow.draw_figure", "report.figures.stall"])
    assert "src/ckptbench/report/figures/kit/ckptbench.mplstyle" in figure


def test_one_figure_does_not_depend_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    figure = sources_of(["workflow.draw_figure", "report.figures.stall"])
    others = [path for path in figure if Path(path).parent.name == "figures"]
    assert others == [
        f"src/ckptbench/report/figures/{name}.py" for name in ("__init__", "files", "stall")
    ]
