"""Which source files a script of a rule runs, so that a change of one of them makes its outputs outdated and that of another does not."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

PACKAGE = "ckptbench"


def sources_of(script: Path, modules: Iterable[str] = (), source: Path = Path("src")) -> list[str]:
    """The files of all modules of ckptbench that the script imports, itself or through others, in their order.

    `modules` are those that it loads by name, such as that of a figure, without the leading `ckptbench.`. What else lies beside a
    module, such as a page's style, belongs to it.
    """
    graph = _imports()
    found: set[str] = set()
    new = {*_imported(script, graph), *(f"{PACKAGE}.{name}" for name in modules)}
    while new:
        # To import a module runs the packages that it is in, and these import others.
        new |= {parent for each in new for parent in _packages(each)}
        found |= new
        new = {up for each in new for up in graph.find_modules_directly_imported_by(each)} - found
    return sorted(str(path) for path in {*_files(found, source)})


@functools.cache
def _imports() -> grimp.ImportGraph:
    return grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)


def _imported(script: Path, graph: grimp.ImportGraph) -> Iterator[str]:
    """The modules that the statements of the script name. In `from a import b` b may be a module, or a name in a."""
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"), str(script))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name in graph.modules)


def _packages(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _files(modules: Iterable[str], source: Path) -> Iterator[Path]:
    for module in modules:
        path = source.joinpath(*module.split("."))
        own = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        yield own
        yield from filter(_is_data, own.parent.iterdir())


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix != ".py" and not path.name.startswith(".")
