"""Keeps Snakemake from running the Python code that is in a config file or a profile.

Snakemake gives these files to YTE, a template engine. Where a file asks for it with the key `__use_yte__`, YTE runs the
code in it, even in a dry run. Snakemake reads the files before the Snakefile, and has no option against it. So every
Python of the environment imports this module when it starts, by a file `.pth`. The module imports as little as it can
until YTE is imported.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # the module `typing` takes longer than this one
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

ENGINE = "yte"
KEY = "__use_yte__"
ALLOWED = "SNAKEMAKE_ALLOW_YTE"
"""Environment variable. It is 1 where the code in these files may run."""


class _Finder:
    """Finds YTE as Python would without it, and guards it when it has been imported."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != ENGINE:
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(cls)
        found = find_spec(name)
        if found is not None and found.loader is not None:
            execute = found.loader.exec_module

            def execute_and_guard(module: ModuleType) -> None:
                execute(module)
                module.process_yaml = guarded(module.process_yaml)  # type: ignore[attr-defined]

            found.loader.exec_module = execute_and_guard  # type: ignore[method-assign]
        return found


def install() -> None:
    """Guard YTE when this process imports it."""
    if ENGINE not in sys.modules and _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def guarded(process: Callable[..., Any]) -> Callable[..., Any]:
    """YTE's `process_yaml`, which then refuses a file that asks by its own key for being a template.

    With `require_use_yte`, as Snakemake reads config files and profiles, the file decides. Without it the caller does.
    """

    def process_yaml(
        source: Any, *arguments: Any, require_use_yte: bool = False, **options: Any
    ) -> Any:
        if require_use_yte:
            source = _without_code(source)
        return process(source, *arguments, require_use_yte=require_use_yte, **options)

    return process_yaml


def _without_code(source: Any) -> Any:
    """A stream with what `source` holds. Raises Snakemake's CliException if it asks for YTE, unless it may."""
    import io
    import os

    import yaml
    from snakemake.exceptions import CliException

    text = source if isinstance(source, str) else source.read()
    name = getattr(source, "name", "a text")
    try:
        # Loaded as YTE itself loads it. This loader makes no objects and calls nothing.
        content = yaml.load(text, Loader=yaml.FullLoader)
    except yaml.YAMLError:
        content = None  # YTE meets the same fault
    if isinstance(content, dict) and content.get(KEY) and os.environ.get(ALLOWED) != "1":
        raise CliException(
            f"{name}: the key {KEY} has Snakemake run the Python code in this file, even in a dry run: remove the key, "
            f"or, if you trust the whole file, set {ALLOWED}=1"
        )
    again = io.StringIO(text)
    again.name = name
    return again


install()
