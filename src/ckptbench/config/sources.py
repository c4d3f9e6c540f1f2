"""Which source files a script of a rule runs, so that a change of one of them makes its outputs outdated and that of another does not."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

import grimp

PACKAGE = "ckptbench"


def sources_of(script: Path, modules: Iterable[str] = (), source: Path = Path("src")) -> list[str]:
    """The files of all modules of ckptbench that the script imports, itself or through others, in their order.

    `modules` are those that it loads by name, such as that of a figure, without the leading `ckptbench.`. What else lies beside a
    module, such as a page's style, belongs to it.
    """
    new = {*_imported(script), *(f"{PACKAGE}.{name}" for name in modules)}
    found: set[str] = set()
    while new:
        found |= new
        new = set().union(*map(_needs, new)) - found
    return sorted({path for module in found for path in _files(module, source)})


@functools.cache
def _imports() -> grimp.ImportGraph:
    return grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)


@functools.cache
def _needs(module: str) -> frozenset[str]:
    """What runs before it: the modules that it imports, and the packages that it is in."""
    parts = module.split(".")
    packages = (".".join(parts[:end]) for end in range(1, len(parts)))
    return frozenset([*packages, *_imports().find_modules_directly_imported_by(module)])


@functools.cache
def _imported(script: Path) -> frozenset[str]:
    """The modules that the statements of the script name. In `from a import b` b may be a module, or a name in a."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"), str(script))):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(named & _imports().modules)


@functools.cache
def _files(module: str, source: Path) -> frozenset[str]:
    path = source.joinpath(*module.split("."))
    own = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return frozenset(map(str, [own, *filter(_is_data, own.parent.iterdir())]))


def _is_data(path: Path) -> bool:
    return path.suffix != ".py" and not path.name.startswith(".") and path.is_file()
