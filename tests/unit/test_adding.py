"""`docs/extending.md` to the letter: what it writes for a framework, a model, a dataset, a strategy, a recovery, a table and a figure is all that each needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
REGISTRY = "matrix/registry.py"
PLANNED = """
from ckptbench.config.study import load_config, schema
from ckptbench.config.expansion import expand
common = {"framework": "pytorch", "ranks": 1, "interval": 1}
def planned(**matrix):
    assert '"mine"' in str(schema()).replace("'", '"') or matrix == {"model": "logistic"}
    return [cell.id for cell in expand(load_config({"matrix": {**common, **matrix}, "repeats": 1}))]
"""


def section(heading: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]


def blocks(heading: str) -> list[str]:
    """The blocks of Python of the section under a heading."""
    return re.findall(r"^```python\n(.*?)^```$", section(heading), re.MULTILINE | re.DOTALL)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the package."""
    copy = tmp_path / "ckptbench"
    shutil.copytree(
        ROOT / "src/ckptbench", copy, ignore=shutil.ignore_patterns("__pycache__", "*.html")
    )
    return copy


def add_module(source: Path, heading: str, text: str) -> None:
    """Write the file that the section names."""
    (name,) = set(re.findall(r"src/ckptbench/([\w/]+/mine\.py)", section(heading)))
    (source / name).write_text(text)


def add_entry(source: Path, registry: str, entry: str, module: str = REGISTRY) -> None:
    """Write the entry before the first one of a registry."""
    path = source / module
    text = path.read_text(encoding="utf-8")
    (start,) = re.findall(rf"^{registry} = (?:\w+\(\n(?:    .*,\n)?    )?\{{\n", text, re.MULTILINE)
    path.write_text(text.replace(start, start + entry), encoding="utf-8")


def run(source: Path, code: str) -> str:
    """What the code prints, with the copy of the package."""
    environment = {**os.environ, "PYTHONPATH": str(source.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PLANNED + code], env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_framework_is_a_file_an_entry_and_a_lock(source: Path) -> None:
    """That of NumPy under another name, as the page says; and the study of the page plans its runs."""
    smallest = (source / "frameworks/numpy_framework.py").read_text(encoding="utf-8")
    (source / "frameworks/mine.py").write_text(smallest.replace("NumpyFramework", "Mine"))
    (entry,) = blocks("A framework")
    add_entry(source, "FRAMEWORKS", entry)
    with (source / "matrix/networks/models.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{blocks('A model')[0]}")
    needs, study = (
        re.search(rf"^```{language}\n(.*?)^```$", section("A framework"), re.MULTILINE | re.DOTALL)
        for language in ("text", "yaml")
    )
    assert needs is not None
    assert study is not None
    assert set(needs[1].split()) == {"numpy", "xxhash"}
    code = f"""
import yaml
from ckptbench.matrix.registry import FRAMEWORKS, load
config = load_config(yaml.safe_load({study[1]!r}))
for cell in expand(config):
    print(cell.id)
print(load(FRAMEWORKS["mine"].location), load_config({{"matrix": {{"framework": "all"}}}}).matrix.framework[0])
"""
    *cells, last = run(source, code).splitlines()
    assert last == "<class 'ckptbench.frameworks.mine.Mine'> mine"
    assert all(cell.startswith("mine-logistic-") for cell in cells)
    assert {"never", "npz"} <= {word for cell in cells for word in cell.split("-")}
    assert any("killed" in cell for cell in cells)


def test_a_model_is_one_function(source: Path) -> None:
    (function,) = blocks("A model")
    with (source / "matrix/networks/models.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{function}")
    assert "pytorch-logistic-digits-" in run(source, "print(planned(model='logistic'))")


def test_a_dataset_is_one_class(source: Path, tmp_path: Path) -> None:
    (module,) = blocks("A dataset")
    add_module(source, "A dataset", module)
    code = f"""
from pathlib import Path
from ckptbench.inputs.datasets.sources import prepare
config = load_config({{"datasets": {{"mine": {{"train_samples": 99}}}}}})
print(planned(dataset="mine"))
settings = config.datasets.mine.settings()
print(len(prepare("mine", Path({str(tmp_path / "made")!r}), settings).train_labels))
try:
    load_config({{"datasets": {{"mine": {{"train_samples": 0}}}}}})
except Exception as error:
    print(error)
"""
    printed = run(source, code)
    assert "pytorch-resnet50-mine-r1-" in printed
    assert "\n99\n" in printed
    assert "datasets.mine.train_samples is 0: it should be greater than or equal to 1" in printed


@pytest.mark.parametrize(
    ("heading", "registry", "more"),
    [
        ("A strategy", "STRATEGIES", "strategy='mine'"),
        ("A recovery", "RECOVERIES", "recovery='mine', faults='exponential'"),
    ],
)
def test_a_strategy_and_a_recovery_are_a_file_and_an_entry(
    source: Path, heading: str, registry: str, more: str
) -> None:
    module, entry = blocks(heading)
    add_module(source, heading, module)
    add_entry(source, registry, entry)
    code = f"""
from ckptbench.matrix.registry import {registry}, load
from scripts.pages.registries import recoveries, strategies
entry = {registry}["mine"]
place = entry.rank if hasattr(entry, "rank") else entry.location
print(planned({more}), load(place), "### `mine`" in strategies() + recoveries())
"""
    printed = run(source, code)
    assert re.search(r"-mine-.*<class 'ckptbench\.[\w.]+\.mine\.\w+'> True", printed)


RUNS = "{'runs': pd.DataFrame({'run': ['a', 'b'], 'framework': ['pytorch', 'pytorch'], 'disturbed': False})}"


def test_a_table_is_a_module_and_a_line(source: Path) -> None:
    module, entry = blocks("A table")
    add_module(source, "A table", module)
    add_entry(source, "DERIVED", entry, "analysis/tables/registry.py")
    code = f"""
import pandas as pd
from ckptbench.analysis.tables.registry import DERIVED
print(DERIVED["mine"].table.names, DERIVED["mine"].fill({RUNS}).to_dict("records"))
"""
    rows = [{"framework": "pytorch", "runs": 2}]
    assert run(source, code) == f"['framework', 'runs'] {rows}\n"


def test_a_figure_is_one_module(source: Path) -> None:
    (module,) = blocks("A figure")
    add_module(source, "A figure", module)
    code = f"""
import pandas as pd
from ckptbench.report.figures import FIGURES
entry = FIGURES["mine"]
tables = {{**{RUNS}, "provenance": pd.DataFrame()}}
print(entry.title, entry.draw(tables).axes[0].patches[0].get_height())
"""
    assert run(source, code) == "Runs of each framework 2\n"
