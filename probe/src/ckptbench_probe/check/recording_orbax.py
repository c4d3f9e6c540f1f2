"""JAX with Orbax: `CheckpointManager.save` is called after each update, with the state and the number of the update, whether it saves or not."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from ckptbench_probe.check.recorder import RECORDER, Now
from ckptbench_probe.check.trees import arrays
from ckptbench_probe.harmless import harmless


def patch(module: Any) -> None:
    original = module.CheckpointManager.save

    @functools.wraps(original)
    def save(self: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        harmless(_updated)(step, [*args, *kwargs.values()])
        return original(self, step, *args, **kwargs)

    module.CheckpointManager.save = save


def _updated(step: int, given: list[Any]) -> None:
    found = dict(pair for argument in given for pair in given_arrays(argument))
    if found:
        RECORDER.updated(Now(found.items(), step=int(step)))


def given_arrays(argument: Any) -> Iterator[tuple[str, Any]]:
    """`args.StandardSave(state)` and its like hold the state in `item`, `args.Composite(name=...)` holds several of them."""
    if hasattr(argument, "items") and not isinstance(argument, dict):
        for name, part in argument.items():
            yield from ((f"{name}{path}", leaf) for path, leaf in given_arrays(part))
    elif getattr(argument, "item", None) is not None:
        yield from ((path, leaf) for path, leaf in arrays(argument.item) if hasattr(leaf, "dtype"))
