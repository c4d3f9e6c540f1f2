"""The values that options take: times, sizes and bandwidths with their units, and what a checkpoint costs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from ckptbench.answer.quantities import read_bandwidth, read_count, read_every, read_size, read_time
from ckptbench.errors import ConfigError
from ckptbench.matrix.shown import show

BLOCKING, ASYNCHRONOUS = "blocking", "async"
"""Names of strategies without one."""
PLUS = re.compile(r"(?<!\d[eE])\+")
"""Between two times, and not that of a number such as 1e+3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What one checkpoint of a strategy costs, as an option says it."""

    name: str
    stall_s: float
    """Training is blocked."""
    then_s: float | None = None
    """From then on until the checkpoint is durable. None: as long as `--state` and `--bandwidth` say."""


class Read(click.ParamType[Any]):
    """A text that one of the functions of `quantities` reads. The context keeps it as it is written, for the page."""

    def __init__(self, metavar: str, read: Callable[[str], Any]) -> None:
        self.name = metavar
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if ctx is not None and param is not None:
            written(ctx).append((param.opts[0].removeprefix("--"), value))
        try:
            return self._read(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def written(ctx: click.Context) -> list[tuple[str, str]]:
    """The options of this kind as they are written, each with its name."""
    texts: list[tuple[str, str]] = ctx.meta.setdefault(f"{__name__}.written", [])
    return texts


def _blocking(text: str) -> Checkpoint:
    name, time = _named(text, BLOCKING)
    return Checkpoint(name=name, stall_s=read_time(time), then_s=0.0)


def _asynchronous(text: str) -> Checkpoint:
    name, times = _named(text, ASYNCHRONOUS)
    stall, *then = PLUS.split(times, maxsplit=1)
    return Checkpoint(
        name=name, stall_s=read_time(stall), then_s=read_time(then[0]) if then else None
    )


def _named(text: str, usual: str) -> tuple[str, str]:
    """The name, and what stands behind it. Without a name the usual one."""
    name, given, rest = text.rpartition("=")
    if not given:
        return usual, text
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"{show(text)}: write a name before =, as in sharded=20s")
    return " ".join(name.split()), rest


TIME = Read("TIME", read_time)
COUNT = Read("NUMBER", read_count)
SIZE = Read("SIZE", read_size)
BANDWIDTH = Read("BANDWIDTH", read_bandwidth)
EVERY = Read("TIME|STEPS", read_every)
A_BLOCKING = Read("[NAME=]TIME", _blocking)
AN_ASYNCHRONOUS = Read("[NAME=]TIME+TIME", _asynchronous)
