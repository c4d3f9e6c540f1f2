"""`Model.save` and `Model.save_weights` of Keras, which its callbacks call."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.wrapping import argument, path_of, saving


def patch(module: Any) -> None:
    for name in ("save", "save_weights"):
        setattr(module.Model, name, _measured(getattr(module.Model, name)))


def _measured(original: Any) -> Any:
    return saving(
        original,
        "keras",
        target=lambda args, kwargs: path_of(argument(args, kwargs, 1, "filepath")),
        content=lambda args, kwargs: _variables(args[0]),
    )


def _variables(model: Any) -> list[Any]:
    """Of the model and of its optimizer, which `model.variables` leaves out. A file of weights has both, too."""
    optimizer = getattr(model, "optimizer", None)
    return [_Sized(one) for one in [*model.variables, *getattr(optimizer, "variables", [])]]


class _Sized:
    """A variable of Keras, with the size that arrays have."""

    def __init__(self, variable: Any) -> None:
        self.dtype = variable.dtype
        self.shape = variable.shape
        self.nbytes = _bytes(variable)


def _bytes(variable: Any) -> int:
    size = 1
    for length in variable.shape:
        size *= int(length)
    return size * int("".join(filter(str.isdigit, str(variable.dtype))) or 8) // 8
