"""Who may import whom, beyond the floors of `.importlinter`: what ranks load, what figures load, and frameworks."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
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
ANALYSIS_LIBRARIES = {"analysis": {"numpy", "pandas", "pyarrow", "scipy"}, "report.figures": {"numpy", "pandas", "matplotlib"}, "report.page": {"numpy", "pandas", "vl_convert"}, "report.study_page": {"docutils", "pandas", "pyarrow"}}  # fmt: skip
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


@cache
def imported(module: str) -> tuple[str, ...]:
    """Every module, or name in one, that `module` imports anywhere in it, for types alone too."""
    path = SOURCE / "ckptbench" / f"{module.replace('.', '/')}.py"
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def libraries(module: str) -> set[str]:
    """The packages that it needs beside the standard library and ckptbench."""
    return {name.partition(".")[0] for name in imported(module)} - sys.stdlib_module_names - {"ckptbench"}  # fmt: skip


def beyond(names: Iterable[str], allowed: Callable[[str], set[str]]) -> dict[str, set[str]]:
    """By module, the libraries that it imports and may not."""
    return {name: more for name in names if (more := libraries(name) - allowed(name))}


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


def test_what_ranks_load_needs_numpy_and_xxhash_at_most() -> None:
    own_library = {"checkpointing.checksum": {"xxhash"}, "common.objects": {"fsspec"}}
    assert not beyond(
        (name for name in modules(*IN_RANKS) if not is_plugin(name)),
        lambda name: {"numpy"} | own_library.get(name, set()),
    )


def test_what_ranks_load_imports_nothing_of_ckptbench_that_they_do_not() -> None:
    # `from ckptbench.common import page_cache` gives machine.page_cache; `from ckptbench.launch import x` launch.x.
    assert not {
        module: others
        for module in modules(*IN_RANKS)
        if (others := [name for name in own(module) if not is_below(name, IN_RANKS)])
    }


@pytest.mark.parametrize(
    ("room", "allowed", "unknown"),
    [
        *((room, some, NOT_FOR_ANALYSIS) for room, some in ANALYSIS_LIBRARIES.items()),
        ("decide", {"numpy", "pandas", "pydantic", "scipy"}, NOT_FOR_DECISION),
        ("audit", {"numpy", "pandas", "scipy"}, ()),
    ],
)
def test_what_needs_no_framework_imports_none_and_trains_nothing(
    room: str, allowed: set[str], unknown: tuple[str, ...]
) -> None:
    assert not beyond(modules(room), lambda _: allowed)
    assert not {
        module: others
        for module in modules(room)
        if (others := [each for each in own(module) if is_below(each, unknown) and each != CHOICES])
    }  # fmt: skip


def test_a_plugin_knows_no_other_of_its_room() -> None:
    """A folder, as Horovod's, may build on others."""
    for module in filter(is_plugin, modules(*SHARED)):
        room = room_of(module)
        assert room
        shared = tuple(f"{room}.{name}" for name in SHARED[room] if name != "loading")
        if "." not in module.removeprefix(f"{room}."):
            known = [name for name in own(module) if is_below(name, (room,))]
            assert not [name for name in known if not is_below(name, shared)], module


def test_the_plugins_of_today_are_found() -> None:
    """Or the tests above would check nothing."""
    found = [name for name in modules("frameworks") if is_plugin(name)]
    assert {
        "frameworks.chainer.framework",
        "frameworks.horovod.ranks",
        "frameworks.pytorch.framework",
    } <= set(found)
    assert "torch" in libraries("frameworks.pytorch.framework")


@pytest.mark.parametrize(
    ("registry", "unneeded"),
    [
        ("analysis.tables.registry", {"numpy", "pandas"}),
        ("report.figures", {"matplotlib", "pandas"}),
    ],
)
def test_a_registry_is_known_without_what_fills_it(registry: str, unneeded: set[str]) -> None:
    code = f"import sys, ckptbench.{registry}; print({unneeded} & {{*sys.modules}})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.strip() == "set()"
