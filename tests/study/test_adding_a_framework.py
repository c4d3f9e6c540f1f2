"""`docs/extending.md` to the letter: its steps add a framework to a copy of the project, and nothing else does."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT, Checkout

STUDY = "config/mine.yaml"
LEFT_OUT = (".git", ".venv", ".environments", ".snakemake", "results", "__pycache__", ".*_cache")
DRAWN = "results/figures/overhead.pdf"
DRIFT = (
    "tests/unit/test_docs.py", "tests/unit/test_rooms.py",
    "tests/unit/test_environments.py::test_a_lock_holds_versions_with_hashes_and_no_sources",
    "tests/unit/test_figures_kit.py::test_every_framework_has_a_name_a_colour_and_a_marker_of_its_own",
)  # fmt: skip
# What a reader sees of the framework: run with the source of the copy.
LOOK = """
import json
from pathlib import Path
from matplotlib.colors import to_hex
from ckptbench.analysis.tables.store import read_tables
from ckptbench.report.figures import FIGURES
from ckptbench.config.study import load_config
entry = FIGURES["overhead"]
figure = entry.draw(read_tables(Path("results/tables"), entry.tables))
lines = [line for axes in figure.axes for line in axes.lines]
print(json.dumps({
    "titles": [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes],
    "colors": sorted({to_hex(line.get_color()) for line in lines}),
    "markers": sorted({str(line.get_marker()) for line in lines}),
    "all": list(load_config({"matrix": {"framework": "all"}}).matrix.framework),
}))
"""


class Page:
    """The blocks of code of docs/extending.md, by the words before each."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")

    def block(self, heading: str, language: str, number: int = 0) -> str:
        """The block of this language, counted from 0, of the section under a heading."""
        section = re.split(r"^#+ ", self.text.partition(f"\n{heading}\n")[2], flags=re.MULTILINE)[0]
        return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[number]


LINKS = {"scripts/ckptbench": "../src/ckptbench", "ckptbench": "src/ckptbench"}
"""Where scripts and `python -m` look first: the copy's own source, though .venv is that of the project."""


def copy_of_the_project(folder: Path) -> Checkout:
    """Real files: a link would add the framework to the project itself."""
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (folder / ".environments").mkdir()
    (folder / ".environments" / "data").symlink_to(ROOT / ".environments" / "data")
    (folder / ".venv").symlink_to(sys.prefix)  # where `make environment` puts the tools
    for link, source in LINKS.items():
        (folder / link).symlink_to(source)
    return Checkout(folder)


def insert(path: Path, registry: str, line: str) -> None:
    """Add a line at the end of a dictionary of a module."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for node in ast.parse("".join(lines)).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == registry for each in targets):
            entries = node.value.args[0] if isinstance(node.value, ast.Call) else node.value  # type: ignore[attr-defined]
            lines.insert(entries.end_lineno - 1, line)
    path.write_text("".join(lines), encoding="utf-8")


def add_the_framework(folder: Path, page: Page) -> None:
    """The steps of the page, in its order."""
    source = folder / "src" / "ckptbench"
    given = (source / "frameworks" / "numpy_framework.py").read_text(encoding="utf-8")
    (source / "frameworks" / "mine.py").write_text(given.replace("NumpyFramework", "Mine"))
    registry = source / "matrix" / "registry.py"
    insert(registry, "FRAMEWORKS", page.block("### 2. The line in the registry", "python"))
    (folder / "envs" / "mine.in").write_text(page.block("### 3. The locks", "text"))
    models = source / "matrix" / "networks" / "models.py"
    with models.open("a", encoding="utf-8") as file:
        file.write(f"\n\n{page.block('## A model', 'python')}")
    run(folder, ["bash", "-e", "-c", page.block("### 3. The locks", "bash")])
    (folder / STUDY).write_text(page.block("### 4. A run", "yaml"))


def run(folder: Path, command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A copy of the project with the framework in it, whose study has been run to its tables and a figure."""
    checkout = copy_of_the_project(tmp_path_factory.mktemp("adding") / "checkout")
    with pytest.MonkeyPatch.context() as patch:
        # As in a clone of its own, where `make environment` installs the clone's source.
        patch.setenv("PYTHONPATH", str(checkout.folder / "src"))
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        add_the_framework(checkout.folder, Page(ROOT / "docs" / "extending.md"))
        done = checkout.run(DRAWN, "results/tables/resume_proof.parquet", study=STUDY)
        assert done.returncode == 0, done.stdout
        yield checkout


def test_the_steps_touch_one_file_one_registry_and_the_locks(added: Checkout) -> None:
    """And the model, the study, and what `make generated` writes."""
    changed = {
        str(path.relative_to(added.folder))
        for path in added.folder.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and differs(path, added.folder)
        and not any(added.folder / link in path.parents for link in LINKS)
    }
    assert changed == {
        "src/ckptbench/frameworks/mine.py", "src/ckptbench/matrix/registry.py", "envs/mine.in", "envs/mine.txt",
        "src/ckptbench/matrix/networks/models.py", STUDY,
        "workflow/schemas/config.schema.json", "config/README.md", "docs/determinism.md", "docs/names.md", "docs/tables.md",
    }  # fmt: skip


def differs(path: Path, folder: Path) -> bool:
    relative = path.relative_to(folder)
    made = {"results", ".snakemake", ".environments", ".venv", "__pycache__"}
    if made & set(relative.parts):
        return False
    original = ROOT / relative
    return not original.exists() or original.read_bytes() != path.read_bytes()


def test_its_runs_are_sealed_in_an_environment_that_the_workflow_made(added: Checkout) -> None:
    runs = added.table("runs")
    assert set(runs["run"]) == set(added.seals())
    assert set(runs["framework"]) == {"mine"}
    assert set(runs["format"]) == {"npz", "none"}
    ready = json.loads((added.folder / ".environments/mine/ready.json").read_text())
    assert ready["lock"] == "mine.txt"
    # Nothing that ran since could have compiled it.
    packages = added.folder / ".environments/mine/lib/python3.11/site-packages"
    assert list(packages.glob("numpy/__pycache__/*.pyc"))


@pytest.mark.parametrize("table", ["overhead", "sizes", "stall", "restore"])
def test_every_table_has_its_rows(added: Checkout, table: str) -> None:
    assert set(added.table(table)["framework"]) == {"mine"}


def test_both_estimates_of_its_overhead_have_an_interval_from_two_repeats(added: Checkout) -> None:
    overhead = added.table("overhead")
    assert set(overhead["repeats"]) == set(overhead["paired_repeats"]) == {2}
    for estimate in ("paired", "in_run"):
        ends = [f"{estimate}_lo", f"{estimate}_hi"]
        assert overhead[[estimate, *ends]].notna().all(axis=None)
        assert overhead[estimate].between(*(overhead[end] for end in ends)).all()


def test_a_killed_run_of_it_is_bitwise_equal_and_its_control_is_caught(added: Checkout) -> None:
    proof = added.table("resume_proof")
    assert set(proof["omit"]) == {"nothing", "momentum"}
    restarted, control = (proof[proof["omit"] == part] for part in ("nothing", "momentum"))
    assert set(restarted["attempts"]) == {2}
    assert restarted["bit_equal"].all()
    assert not control["bit_equal"].any()
    assert control["caught"].all()
    assert control["missing"].notna().all()


def test_readers_see_its_name_colour_and_marker_and_all_includes_it(added: Checkout) -> None:
    assert added.is_drawn("overhead")
    seen = json.loads(run(added.folder, [sys.executable, "-c", LOOK]))
    assert any("Mine" in title for title in seen["titles"])
    assert "#555555" in seen["colors"]
    assert "*" in seen["markers"]
    assert seen["all"][-1] == "mine"
    schema = (added.folder / "workflow/schemas/config.schema.json").read_text()
    assert '"mine"' in schema


def test_the_checks_of_the_project_pass_with_it(added: Checkout) -> None:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *DRIFT]
    done = subprocess.run(
        command, cwd=added.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
