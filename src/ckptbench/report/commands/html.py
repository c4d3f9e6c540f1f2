"""The page that computes in the browser, from the options of the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from ckptbench.common.errors import DataError
from ckptbench.common.remedies import blame
from ckptbench.decide.rates import published, read_rates
from ckptbench.decide.units import SECONDS_PER_HOUR
from ckptbench.report.commands.case import Case, Strategy
from ckptbench.report.commands.options import Asked
from ckptbench.report.commands.tables import costs_of, usual
from ckptbench.report.page.html import page

Pairs = Sequence[tuple[str, str]]

AS_WRITTEN = ("mtbf", "step", "blocking", "async", "restart", "now")
"""Options that the page has fields for."""


def write_calculator(path: Path) -> None:
    """The page with an example. Raises DataError where it cannot be written."""
    _write(path, page(None, read_rates(published()), usual()))


def check_new(path: Path, asked: Asked) -> None:
    """Raises a usage error where the page would replace a file that the answer is read from."""
    for each in filter(None, (asked.training_log, asked.costs, asked.log, asked.rate)):
        if path.exists() and Path(each).exists() and path.samefile(each):
            raise click.UsageError(f"--html: the answer is read from {path}: name another file")


def write_case(path: Path, asked: Asked, written: Pairs) -> None:
    """The page with the case of the reader: of options as they are written, or of a study or file. Raises DataError where it cannot be written."""
    rates, choices = read_rates(published()), usual()
    gpus = asked.gpus or 1
    case = [(name, text) for name, text in written if name in AS_WRITTEN]
    if asked.gpus is not None:
        case.append(("gpus", str(gpus)))
    if asked.gpu_mtbf is not None:
        case.append(("mtbf", f"{asked.gpu_mtbf / gpus / SECONDS_PER_HOUR:g} h"))
    elif asked.mtbf is None:
        rate = asked.failure_rate(gpus)
        case.append(("rate", rate.name))
        rates = [rate, *(each for each in rates if each.name != rate.name)]
        choices = replace(choices, rate=rate.name)
    if asked.is_of_tables:
        _write(path, page(costs_of(asked).table, rates, choices))
    else:
        if asked.state is not None:
            case = _computed(asked.case(), case)
        _write(path, page(None, rates, choices, case))


def _computed(case: Case, written: Pairs) -> list[tuple[str, str]]:
    """With seconds in place of what storage does: the page has no fields for all of that."""
    kept = [(name, text) for name, text in written if name not in ("blocking", "async", "restart")]
    return [*kept, ("restart", f"{case.recovering.down_s:g}s"), *map(_pair, case.strategies)]


def _pair(strategy: Strategy) -> tuple[str, str]:
    stall_s, durable_s = float(strategy.saving.stall_s), float(strategy.saving.durable_s)
    if durable_s <= stall_s:
        return "blocking", f"{strategy.name}={stall_s:g}s"
    return "async", f"{strategy.name}={stall_s:g}s+{durable_s - stall_s:g}s"


def _write(path: Path, text: str) -> None:
    """Raises DataError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        told = blame(error, path, "name a file elsewhere")
        raise DataError(f"{path}: cannot be written: {told}") from None
