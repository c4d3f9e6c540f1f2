"""The docstring of a module that is not imported: the library that it needs may not be installed."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path


def docstring(module: str) -> str:
    """Raises ImportError where there is no such module. Empty where it has no docstring."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(module)
    return ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
