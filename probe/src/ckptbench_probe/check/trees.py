"""Arrays of a state that is made of dicts, lists and, with JAX, of any registered type."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ckptbench_probe.check.state import leaves


def arrays(state: Any) -> Iterator[tuple[str, Any]]:
    jax = sys.modules.get("jax")
    if jax is None:
        yield from leaves(state)
        return
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        yield jax.tree_util.keystr(path), leaf
