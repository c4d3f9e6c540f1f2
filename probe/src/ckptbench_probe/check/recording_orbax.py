"""JAX with Orbax: `CheckpointManager.save` is called after each update, with the state and the number of the update, whether it saves or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ckptbench_probe.check.recorder import RECORDER, Now
from ckptbench_probe.check.trees import arrays
from ckptbench_probe.engines.calls import first
from ckptbench_probe.engines.orbax import items


def patch(module: Any) -> None:
    module.CheckpointManager.save = first(module.CheckpointManager.save, _updated)


def _updated(_: Any, step: int, *args: Any, **kwargs: Any) -> None:
    found = dict(given_arrays(args, kwargs))
    if found:
        RECORDER.updated(Now(found.items(), step=int(step)))


def given_arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """By the name of the item, where it has one, and the path in it."""
    for name, item in items(args, kwargs).items():
        yield from (
            (f"{name}{path}", leaf) for path, leaf in arrays(item) if hasattr(leaf, "dtype")
        )
