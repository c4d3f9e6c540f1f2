"""Bytecode that another environment has already: six of them hold PyTorch, whose modules take seconds to compile."""

from __future__ import annotations

import os
from importlib.util import cache_from_source
from pathlib import Path

from ckptbench.environments.folder import READY


def link_bytecode(folder: Path) -> int:
    """Link what finished environments beside `folder` have compiled of the same files, and return how many modules that is.

    uv links the files of a package from its cache, so that equal ones are one file in all environments. Where it copies them, nothing is linked.
    """
    others = [ready.parent for ready in folder.parent.glob(f"*/{READY}") if ready.parent != folder]
    return sum(_is_linked(source, folder, others) for source in folder.glob("lib/**/*.py"))


def _is_linked(source: Path, folder: Path, others: list[Path]) -> bool:
    own = source.stat()
    compiled = Path(cache_from_source(str(source)))
    for other in others:
        same = other / source.relative_to(folder)
        try:
            if os.path.samestat(own, same.stat()):
                compiled.parent.mkdir(exist_ok=True)
                os.link(cache_from_source(str(same)), compiled)
                return True
        except OSError:
            # The other environment lacks it, or this one has it. It is compiled if it must be.
            continue
    return False
