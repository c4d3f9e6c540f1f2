"""Which source files a rule runs, so that a change of one of them makes its outputs outdated and that of another does not."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import grimp

PACKAGE = "ckptbench"


def sources_of(modules: Iterable[str], source: Path = Path("src")) -> list[str]:
    """The files of these modules and of all that they import, themselves or through others, in their order.

    They are named without the leading `ckptbench.`. What else lies beside a module, such as a page's style, belongs to it.
    """
    new = {f"{PACKAGE}.{name}" for name in modules}
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
def _files(module: str, source: Path) -> frozenset[str]:
    path = source.joinpath(*module.split("."))
    own = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return frozenset(map(str, [own, *filter(_is_data, own.parent.iterdir())]))


def _is_data(path: Path) -> bool:
    return path.suffix != ".py" and not path.name.startswith(".") and path.is_file()
