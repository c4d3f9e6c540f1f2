"""`Model.save` and `Model.save_weights` of Keras, which its callbacks call."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.calls import path_at
from ckptbench_probe.engines.wrapping import saving


def patch(module: Any) -> None:
    for name in ("save", "save_weights"):
        own = saving(
            getattr(module.Model, name), "keras", target=path_at(1, "filepath"), content=_variables
        )
        setattr(module.Model, name, own)


def _variables(args: tuple[Any, ...], _: Any) -> dict[str, Any]:
    """Of the model and of its optimizer, which `model.variables` leaves out. A file of weights has both, too."""
    optimizer = getattr(args[0], "optimizer", None)
    found: dict[str, Any] = {}
    for one in [*args[0].variables, *getattr(optimizer, "variables", [])]:
        found[one.path if one.path not in found else f"{one.path} ({len(found)})"] = one
    return found
