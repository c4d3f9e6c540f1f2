"""What a reader is shown for a value of a table: `torch_save` is "torch.save", `e5` "every 5 epochs"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ckptbench.matrix.catalogue import (
    FAULTS,
    FORMAT_LABELS,
    FRAMEWORKS,
    HISTORIES,
    OMISSIONS,
    RECOVERIES,
    STRATEGIES,
    registered,
)
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.variant import Option


class HasOptions(Protocol):
    """An entry of a registry whose members take options."""

    @property
    def options(self) -> Mapping[str, Option]:
        """The default of each option, by its name."""


FRAMEWORK_NAMES = {name: entry.label for name, entry in FRAMEWORKS.items() if entry.label}
SUBJECTS = {
    "resnet50": "ResNet-50",
    "vgg16": "VGG-16",
    "alexnet": "AlexNet",
    "googlenet": "GoogLeNet",
    "googlenet_aux": "GoogLeNet (auxiliary heads)",
    "nt3": "NT3",
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


def strategy(value: str) -> str:
    """`deepfreeze_levels_memory` is "deepfreeze (levels memory)", a flag `deepfreeze_partner_True` "deepfreeze (partner)"."""
    return _variant(value, STRATEGIES)


def recovery(value: str) -> str:
    """`restart_patience_s_30` is "restart (patience s 30)"."""
    return _variant(value, RECOVERIES)


def history(value: str) -> str:
    """A name of HISTORIES, or the trace of failures that struck: `exponential_mean_s_60` is "exponential (mean s 60)"."""
    if value in HISTORY_NAMES:
        return HISTORY_NAMES[value]
    return _variant(value, FAULTS)


def _variant(value: str, registry: Mapping[str, HasOptions]) -> str:
    fitting = [each for each in registry if f"{value}_".startswith(f"{each}_")]
    if not fitting:
        return name(value)
    own = max(fitting, key=len)
    given = _options(value[len(own) + 1 :], sorted(registry[own].options))
    if given is None:
        return name(value)
    words = ", ".join(_option(option, text) for option, text in given)
    return f"{name(own)} ({words})" if words else name(own)


def _options(text: str, options: Sequence[str]) -> list[tuple[str, str]] | None:
    """The options in what follows a strategy's name, each with its value; None if they are others than these.

    They stand in the order of their names, so a value ends where the name of a later option begins.
    """
    if not text:
        return []
    fitting = [option for option in options if text.startswith(f"{option}_")]
    if not fitting:
        return None
    option = max(fitting, key=len)
    later = options[options.index(option) + 1 :]
    value = text[len(option) + 1 :]
    end = min((at for each in later if (at := value.find(f"_{each}_")) > 0), default=len(value))
    rest = _options(value[end + 1 :], later)
    return None if rest is None else [(option, value[:end]), *rest]


def _option(option: str, value: str) -> str:
    flags = {"True": name(option), "False": f"no {name(option)}"}
    return flags.get(value, f"{name(option)} {value}")


def decides_format(strategy: str) -> bool:
    """Whether the strategy, as tables name it, writes in one format alone, so that it need not be named."""
    try:
        formats = STRATEGIES[registered(strategy)].formats
    except KeyError:
        return False
    return formats is not None and len(formats) == 1


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


DESCRIPTIONS: dict[str, Callable[[Any], str]] = {
    "interval": interval,
    "strategy": strategy,
    "ranks": lambda ranks: counted(ranks, "rank"),
    "batch_size": lambda size: f"batch {size} per rank",
    "epochs": lambda epochs: counted(epochs, "epoch"),
    "steps_per_epoch": lambda steps: f"{counted(steps, 'step')} an epoch",
    "deterministic": lambda on: "deterministic mode" if on else "default mode",
    "hardware": str,
    "history": history,
    "recovery": recovery,
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
    """Sort key: names as in KNOWN (unknown ones last), intervals by their length, strategies and recoveries as in their registries."""
    if column == "strategy":
        return _registered_order(value, STRATEGIES)
    if column == "recovery":
        return _registered_order(value, RECOVERIES)
    if column == "interval":
        return Interval.parse(value)
    known = KNOWN.get(column)
    if known is None:
        return value
    return (known.index(value) if value in known else len(known), _natural(value))


def _registered_order(value: str, registry: Mapping[str, HasOptions]) -> tuple[int, list[Any]]:
    fitting = [name for name in registry if f"{value}_".startswith(f"{name}_")]
    names = list(registry)
    return (
        names.index(max(fitting, key=len)) if fitting else len(names),
        _natural(value),
    )


def _natural(value: str) -> list[Any]:
    """Sorts numbers in a name by their size: `mean_s_60` before `mean_s_240`."""
    parts = re.split(r"(\d+\.?\d*)", value)
    return [float(part) if place % 2 else part for place, part in enumerate(parts)]
