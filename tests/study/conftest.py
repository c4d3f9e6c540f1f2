"""The study's tests run in the frameworks' real environments: those that the selected tests name are made first.

A test names its frameworks by its parameter `framework`, or by the mark `frameworks`; the environment that prepares
data is always made. The tests of the page to ask "what if" share one Chromium.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptbench.analysis.tables.registry import TABLES
from ckptbench.analysis.tables.store import write_tables
from ckptbench.decide.rates import FailureRate, read_rates
from ckptbench.matrix.registry import FRAMEWORKS, environment_of
from ckptbench.report.answer import STUDY_TABLES
from ckptbench.report.page.html import page
from tests.decided_study import CHOICES, RATES, costs
from tests.study.browser import Browser, chromium, obstacle
from tests.study.warm.environments import SHARED

ROOT = Path(__file__).resolve().parents[2]
GROWTH = json.dumps({"fit": {"stall_s": [0.5, 3.0, 1e-3], "durable_s": [1.0, 2.0, 0.0], "down_s": [5.0, 0.0, 0.02]}})  # fmt: skip
SCREEN = (1280, 900)
"""Pixels of the window in which the page is tested."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "frameworks(*names): the frameworks in whose environments a test runs"
    )


def frameworks_of(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers("frameworks"):
        yield from mark.args
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        name = item.callspec.params.get("framework")
        if isinstance(name, str):
            yield name


@pytest.fixture(scope="session", autouse=True)
def environments(request: pytest.FixtureRequest) -> None:
    """Made, or brought up to their locks, by the workflow's own rule; in `make test` they just were."""
    if SHARED in os.environ:
        return
    used = {name for item in request.session.items for name in frameworks_of(item)}
    names = {environment_of(name) if name in FRAMEWORKS else name for name in used}
    made = [f".environments/{name}/ready.json" for name in ("data", *sorted(names))]
    # `make test` has made them, and starts two sessions at once: each would find the folder locked by the other.
    command = [sys.executable, "-m", "snakemake", *made, "--cores", "2", "--nolock", "--quiet", "all"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared dataset `digits`."""
    folder = tmp_path_factory.mktemp("digits")
    python = ROOT / ".environments" / "data" / "bin" / "python"
    command = [str(python), "-m", "ckptbench.workflow", "prepare-dataset", "digits", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def rates() -> dict[str, FailureRate]:
    return {rate.name: rate for rate in (*read_rates(RATES), *read_rates(RATES / "example"))}


@pytest.fixture(scope="session")
def written(rates: dict[str, FailureRate], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small study."""
    path = tmp_path_factory.mktemp("page") / "decision.html"
    path.write_text(page(costs(), list(rates.values()), CHOICES), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of that study where costs grow with the number of GPUs, and one strategy makes all steps longer."""
    rows = costs()[lambda frame: frame["framework"] == "pytorch"].assign(growth=GROWTH)
    slow = (rows["strategy"] == "async") & (rows["recovery"] == "restart")
    rows.loc[slow, [f"slower_everywhere{end}" for end in ("", "_lo", "_hi")]] = 1.5, 1.4, 1.6
    folder = tmp_path_factory.mktemp("grown")
    tables = {name: TABLES[name].table.rows([]) for name in STUDY_TABLES}
    write_tables(folder, {**tables, "decision_costs": rows})
    return folder


@pytest.fixture(scope="session")
def calculator(rates: dict[str, FailureRate], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page without a study."""
    path = tmp_path_factory.mktemp("calculator") / "calculator.html"
    path.write_text(page(None, list(rates.values()), CHOICES), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    reason = obstacle()
    if reason is not None:
        pytest.skip(f"left out: what needs a real Chromium: {reason}")
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser, written: Path, request: pytest.FixtureRequest) -> Iterator[Browser]:
    """At the start of the page, where the test names none that it opens itself.

    Whatever a test does there, nothing but the file is asked for, and the console stays empty.
    """
    window.shape(*SCREEN)
    window.prefer("light")
    if inspect.signature(request.function).parameters.keys().isdisjoint(("calculator", "written")):
        window.open(written)
    yield window
    asked = {address.partition("#")[0] for address in window.requests()}
    assert asked <= {window.opened, "data:,"}
    assert window.opened in asked
    assert window.console() == []
