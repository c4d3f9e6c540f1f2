"""What a reader is shown for a value of a table: `torch_save` is "torch.save", `e5` "every 5 epochs"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import natural
from ckptbench.matrix.registry import (
    FORMAT_LABELS,
    FRAMEWORKS,
    HISTORIES,
    KILLED,
    OMISSIONS,
    RECOVERIES,
    STRATEGIES,
)

FRAMEWORK_NAMES = {name: entry.label for name, entry in FRAMEWORKS.items() if entry.label}
SUBJECTS = {
    "resnet50": "ResNet-50",
    "vgg16": "VGG-16",
    "alexnet": "AlexNet",
    "googlenet": "GoogLeNet",
    "nt3": "NT3",
    "small_cnn": "small CNN",
    "plain_cnn": "plain CNN",
    "gpt2": "GPT-2",
    "gpt2_medium": "GPT-2 medium",
    "gpt_baby": "baby GPT",
    "cifar10": "CIFAR-10",
    "sgd": "SGD",
    "adamw": "AdamW",
}
NAMES = {**FRAMEWORK_NAMES, **FORMAT_LABELS, **SUBJECTS}
"""Labels by name. A name without a label is shown as it is, with spaces for underscores."""
HISTORY_NAMES = {
    "whole": "uninterrupted",
    "rerun": "same seed again",
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
HOW_MANY = {1: "the only", 2: "both"}
VERBATIM = frozenset(".=")
"""In names that are shown as they are: `deepfreeze memory=1 shared=6`, or `dcp.async_save` in a user's costs."""


def name(value: str) -> str:
    """With spaces for underscores, unless it is a user's or has options."""
    shown = value.replace("_", " ") if VERBATIM.isdisjoint(value) else value
    return NAMES.get(value, shown)


def _named(names: Mapping[str, str]) -> Callable[[str], str]:
    return lambda value: names.get(value, name(value))


def interval(value: str) -> str:
    parsed = Interval.parse(value)
    if parsed.every == 0:
        return "never"
    unit = parsed.unit if parsed.every > 1 else parsed.unit.removesuffix("s")
    return f"every {parsed.every:,} {unit}" if parsed.every > 1 else f"every {unit}"


def decides_format(strategy: str) -> bool:
    """Whether the strategy of this name writes in one format alone, so that it need not be named."""
    entry = STRATEGIES.get(strategy)
    return entry is not None and entry.formats is not None and len(entry.formats) == 1


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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
    "strategy_name": tuple(STRATEGIES),
    "recovery_name": tuple(RECOVERIES),
    "format": tuple(FORMAT_LABELS),
    "history": (*HISTORIES, *KILLED),
    "omit": tuple(OMISSIONS),
    "group": tuple(GROUP_NAMES),
    "cache": CACHES,
}
"""Names that have an order of their own, by their column."""


def describe(column: str, value: Any) -> str:
    """The value in words that can stand alone in a title, a label or a caption."""
    return DESCRIPTIONS.get(column, name)(value)


def order(column: str, value: Any) -> Any:
    """Sort key: names as in KNOWN (unknown ones last), intervals by their length, names with options by the size of these."""
    if column in ("strategy", "recovery"):
        return natural(value)
    if column == "interval":
        return Interval.parse(value)
    known = KNOWN.get(column)
    if known is None:
        return value
    return (known.index(value) if value in known else len(known), natural(value))


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; with semicolons where one of them has a comma."""
    if any("," in word for word in words):
        return "; ".join(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def every(number: int, noun: str) -> str:
    """`the only run`, `both runs`, `all 3 runs`."""
    plural = noun if number == 1 else f"{noun}s"
    return f"{HOW_MANY.get(number, f'all {number}')} {plural}"


def capitalized(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" if text else text
