"""Keeps Snakemake from running the Python code that is in a config file or a profile.

Snakemake gives these files to YTE, a template engine. Where a file asks for it with the key `__use_yte__`, YTE runs the
code in it, even in a dry run. Snakemake reads the files before the Snakefile, and has no option against it. So every
Python of the environment imports this module when it starts, by a file `.pth`. The module imports as little as it can
until YTE is imported. A config file that cannot be read is refused in one line too, where Snakemake ends with a
traceback, or waits for a pipe.
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
READER = "snakemake.common.configfile"
KEY = "__use_yte__"
ALLOWED = "SNAKEMAKE_ALLOW_YTE"
"""Environment variable. It is 1 where the code in these files may run."""


class _Finder:
    """Finds YTE, and Snakemake's reader of config files, as Python would without it, and guards them when imported."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in (ENGINE, READER):
            return None
        others = (each for each in sys.meta_path if each is not cls)
        found = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)  # type: ignore[arg-type]
        if found is not None and found.loader is not None:
            execute = found.loader.exec_module

            def execute_and_guard(module: ModuleType) -> None:
                execute(module)
                if name == ENGINE:
                    module.process_yaml = guarded(module.process_yaml)  # type: ignore[attr-defined]
                else:
                    module._load_configfile = readable(module._load_configfile)  # type: ignore[attr-defined]

            found.loader.exec_module = execute_and_guard  # type: ignore[method-assign]
        return found


def install() -> None:
    """Guard YTE and the reader of config files when this process imports them."""
    if ENGINE not in sys.modules and _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def readable(load: Callable[..., Any]) -> Callable[..., Any]:
    """Snakemake's `_load_configfile`, which then refuses in one line what is no file, or no text in UTF-8."""

    def load_configfile(source: Any, *arguments: Any, **options: Any) -> Any:
        import os

        from snakemake.exceptions import CliException

        is_path = isinstance(source, (str, os.PathLike))
        try:
            if is_path and not os.path.isfile(source):
                os.stat(source)  # raises where nothing is there
                raise OSError("it is no regular file")
            return load(source, *arguments, **options)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            name = source if is_path else getattr(source, "name", "a file")
            raise CliException(
                f"{name}: the config file cannot be read: {why}; correct its path, or the file"
            ) from None

    return load_configfile


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
