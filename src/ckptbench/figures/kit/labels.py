"""What a reader is shown for a value of a table: `torch_save` is "torch.save", `e5` "every 5 epochs"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ckptbench.matrix.catalogue import FORMAT_LABELS, FRAMEWORKS, HISTORIES, OMISSIONS
from ckptbench.matrix.interval import Interval

FRAMEWORK_NAMES = {name: entry.label for name, entry in FRAMEWORKS.items() if entry.label}
SUBJECTS = {
    "resnet50": "ResNet-50",
    "vgg16": "VGG-16",
    "small_cnn": "small CNN",
    "plain_cnn": "plain CNN",
    "cifar10": "CIFAR-10",
}
NAMES = {**FRAMEWORK_NAMES, **FORMAT_LABELS, **SUBJECTS}
"""Labels by name. A name without a label is shown as it is, with spaces for underscores."""
HISTORY_NAMES = {
    "whole": "uninterrupted",
    "again": "same seed again",
    "killed_between": "killed between checkpoints",
    "killed_inside": "killed inside a checkpoint",
    "killed_thrice": "killed three times",
}
OMISSION_NAMES = {
    "nothing": "nothing left out",
    "position": "data position",
    "random": "random states",
    "dropout": "dropout seeds",
    "statistics": "batch-norm statistics",
}
GROUP_NAMES = {
    "weights": "weights",
    "momentum": "momentum",
    "statistics": "statistics",
    "random": "random states",
    "dropout": "dropout seeds",
    "counters": "counters",
    "position": "data position",
}
"""Groups of tensors that a proof compares, in the order that figures show them."""
CACHES = ("warm", "cold")


def name(value: str) -> str:
    return NAMES.get(value, value.replace("_", " "))


def _named(names: Mapping[str, str]) -> Callable[[str], str]:
    return lambda value: names.get(value, name(value))


def interval(value: str) -> str:
    parsed = Interval.parse(value)
    if parsed.every == 0:
        return "never"
    unit = parsed.unit if parsed.every > 1 else parsed.unit.removesuffix("s")
    return f"every {parsed.every} {unit}" if parsed.every > 1 else f"every {unit}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


DESCRIPTIONS: dict[str, Callable[[Any], str]] = {
    "interval": interval,
    "ranks": lambda ranks: counted(ranks, "rank"),
    "batch_size": lambda size: f"batch {size} per rank",
    "epochs": lambda epochs: counted(epochs, "epoch"),
    "steps_per_epoch": lambda steps: f"{counted(steps, 'step')} an epoch",
    "deterministic": lambda on: "deterministic mode" if on else "default mode",
    "hardware": str,
    "history": _named(HISTORY_NAMES),
    "omit": _named(OMISSION_NAMES),
    "group": _named(GROUP_NAMES),
}
KNOWN: Mapping[str, tuple[str, ...]] = {
    "framework": tuple(FRAMEWORKS),
    "format": tuple(FORMAT_LABELS),
    "history": HISTORIES,
    "omit": OMISSIONS,
    "group": tuple(GROUP_NAMES),
    "cache": CACHES,
}
"""Names that have an order of their own, by their column."""


def describe(column: str, value: Any) -> str:
    """The value in words that can stand alone in a title, a label or a caption."""
    return DESCRIPTIONS.get(column, name)(value)


def order(column: str, value: Any) -> Any:
    """Sort key: names as in KNOWN (unknown ones last), intervals by their length."""
    if column == "interval":
        return Interval.parse(value)
    known = KNOWN.get(column)
    if known is None:
        return value
    return (known.index(value) if value in known else len(known), value)
