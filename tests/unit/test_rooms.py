"""Who may import whom, beyond the floors of `.importlinter`: what ranks load, what figures load, and frameworks."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
IN_RANKS = (
    "checkpointing", "inputs.datasets.dataset", "inputs.datasets.order", "common", "failures", "frameworks", "launch.allocation", "matrix", "run",
    "training",
)  # fmt: skip
"""What runs inside a framework's environment, below `ckptbench`."""
SHARED = {
    "frameworks": ("contract", "determinism", "numpy_framework", "random_state"),
    "checkpointing.strategies": ("asynchronous", "deepfreeze", "known_cost", "native", "sharded"),
    "failures.recovery": ("contract", "elastic", "restart"),
}  # fmt: skip
"""Rooms of plug-ins: the files that need no library. Any other is loaded only where its library is installed."""
ANALYSIS_LIBRARIES = {"analysis": {"numpy", "pandas", "pyarrow", "scipy"}, "report.figures": {"numpy", "pandas", "matplotlib"}, "report.page": {"numpy", "pandas", "vl_convert"}}  # fmt: skip
CHOICES = "config.decision.DecisionSection"
"""What a user decides for, which the page shows."""
NOT_FOR_ANALYSIS = ("config", "inputs.environments", "frameworks", "training", "launch")
NOT_FOR_DECISION = ("inputs.environments", "frameworks", "training", "launch")


def modules(*rooms: str) -> list[str]:
    """Every module of these rooms, or these modules, named below `ckptbench`."""
    found = []
    for room in rooms:
        path = SOURCE / "ckptbench" / room.replace(".", "/")
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        assert files, room
        found += [".".join(file.relative_to(SOURCE / "ckptbench").with_suffix("").parts) for file in files]  # fmt: skip
    return found


def imported(module: str) -> Iterator[str]:
    """Every module, or name in one, that `module` imports anywhere in it, for types alone too."""
    path = SOURCE / "ckptbench" / f"{module.replace('.', '/')}.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def libraries(module: str) -> set[str]:
    """The packages that it needs beside the standard library and ckptbench."""
    return {name.partition(".")[0] for name in imported(module)} - sys.stdlib_module_names - {"ckptbench"}  # fmt: skip


def own(module: str) -> Iterator[str]:
    """What it imports of ckptbench, named below it."""
    for name in imported(module):
        if name.startswith("ckptbench."):
            yield name.removeprefix("ckptbench.")


def room_of(module: str) -> str | None:
    """The room of plug-ins that it lies in."""
    return next((room for room in SHARED if module.startswith(f"{room}.")), None)


def is_plugin(module: str) -> bool:
    room = room_of(module)
    if room is None:
        return False
    name, *_ = module.removeprefix(f"{room}.").split(".")
    return name not in (*SHARED[room], "__init__")


def is_below(name: str, parents: tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


@pytest.mark.parametrize("module", [name for name in modules(*IN_RANKS) if not is_plugin(name)])
def test_what_ranks_load_needs_numpy_and_xxhash_at_most(module: str) -> None:
    assert libraries(module) <= {
        "numpy",
        *(["xxhash"] if module == "checkpointing.checksum" else []),
    }


@pytest.mark.parametrize("module", modules(*IN_RANKS))
def test_what_ranks_load_imports_nothing_of_ckptbench_that_they_do_not(module: str) -> None:
    # `from ckptbench.common import page_cache` gives machine.page_cache; `from ckptbench.launch import x` launch.x.
    assert not [name for name in own(module) if not is_below(name, IN_RANKS)]


@pytest.mark.parametrize("module", modules("analysis", "report.figures", "report.page"))
def test_analysis_figures_and_page_import_no_framework_config_or_workflow(module: str) -> None:
    assert libraries(module) <= next(
        some for room, some in ANALYSIS_LIBRARIES.items() if is_below(module, (room,))
    )
    assert not [name for name in own(module) if is_below(name, NOT_FOR_ANALYSIS) and name != CHOICES]  # fmt: skip


@pytest.mark.parametrize("module", modules("decide"))
def test_the_decision_imports_no_framework_and_trains_nothing(module: str) -> None:
    assert libraries(module) <= {"numpy", "pandas", "pydantic", "scipy"}
    assert not [name for name in own(module) if is_below(name, NOT_FOR_DECISION)]


@pytest.mark.parametrize("module", modules("audit"))
def test_the_audit_needs_no_framework(module: str) -> None:
    assert libraries(module) <= {"numpy", "pandas", "scipy"}


@pytest.mark.parametrize("module", [name for name in modules(*SHARED) if is_plugin(name)])
def test_a_plugin_knows_no_other_of_its_room(module: str) -> None:
    """A folder, as Horovod's, may build on others."""
    room = room_of(module)
    assert room
    shared = tuple(f"{room}.{name}" for name in SHARED[room] if name != "loading")
    if "." not in module.removeprefix(f"{room}."):
        known = [name for name in own(module) if is_below(name, (room,))]
        assert not [name for name in known if not is_below(name, shared)]


def test_the_plugins_of_today_are_found() -> None:
    """Or the tests above would check nothing."""
    found = [name for name in modules("frameworks") if is_plugin(name)]
    assert {
        "frameworks.chainer.framework",
        "frameworks.horovod.ranks",
        "frameworks.pytorch.framework",
    } <= set(found)
    assert "torch" in libraries("frameworks.pytorch.framework")
