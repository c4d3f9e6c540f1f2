"""The types of options: what click asks each value for, and how a wrong one is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ckptbench.cli.values import (
    hint,
    read_asynchronous,
    read_blocking,
    read_clock,
    read_days,
    read_failures,
    read_mtbf,
    read_part,
    read_price,
    read_states,
    read_step,
    read_steps_or_time,
)
from ckptbench.common.errors import ConfigError
from ckptbench.decide.state_bytes import read_params
from ckptbench.matrix.shown import show
from ckptbench.report.answer.quantities import read_bandwidth, read_count, read_size


class Read(click.ParamType[Any]):
    """A text that a function reads."""

    def __init__(self, metavar: str, read: Callable[[str], Any]) -> None:
        self.name = metavar
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ConfigError as error:
            self.fail(hint(value) or str(error), param, ctx)


class Log(click.Path):
    """A file that is there. A pipe is none: a log is read more than once."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(value)
        if value == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            self.fail(f"{show(str(value))} is not a file: write it to one first, as with > train.log", param, ctx)  # fmt: skip
        return super().convert(value, param, ctx)


class NewFile(click.Path):
    """A file to be written, which standard output is not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail(f"{show('-')} is not a file name: write one, as page.html", param, ctx)
        return super().convert(value, param, ctx)


class Tables(click.Path):
    """The folder of a study's tables, or one that has it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        folder = Path(str(super().convert(value, param, ctx)))
        inside = [folder / name for name in ("tables", "results/tables")]
        own = list(folder.glob("*.parquet"))
        return folder if own else next((each for each in inside if each.is_dir()), folder)


FAILURES = Read("NUMBER", read_failures)
DAYS = Read("DAYS", read_days)
STATES = Read("STATES", read_states)
TIME = Read("TIME", read_clock)
MTBF = Read("TIME", read_mtbf)
STEP = Read("TIME", read_step)
COUNT = Read("NUMBER", read_count)
PARAMS = Read("NUMBER", read_params)
PART = Read("PART", read_part)
PRICES = Read("PRICE", read_price)
SIZE = Read("SIZE", read_size)
BANDWIDTH = Read("BANDWIDTH", read_bandwidth)
EVERY = Read("TIME|STEPS", read_steps_or_time)
A_BLOCKING = Read("[NAME=]TIME", read_blocking)
AN_ASYNCHRONOUS = Read("[NAME=]STOP+WRITE", read_asynchronous)
FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
LOG = Log(exists=True, dir_okay=False, readable=True, path_type=Path)
TABLES = Tables(exists=True, file_okay=False, path_type=Path)
NEW_FILE = NewFile(dir_okay=False, path_type=Path)
