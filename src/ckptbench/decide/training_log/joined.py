"""Several logs of one training, one for each start of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.events import Event, Log
from ckptbench.decide.training_log.reader import read_log
from ckptbench.decide.training_log.run import DATED_S


def read_logs(paths: Sequence[Path], patterns: Sequence[str] = ()) -> tuple[list[Path], Log]:
    """The files in the order of their times, and all that they say. Logs without dates are put in the order of their first steps.

    Raises ConfigError or DataError as `read_log`, and DataError where the logs are not of one training, one after the other.
    """
    logs = {path: read_log(path, patterns) for path in paths}
    spans = {path: _dates(log) for path, log in logs.items()}
    is_dated = all(spans.values())
    order = sorted(paths, key=lambda path: spans[path] if is_dated else _first_step(logs[path]))
    for one, other in pairwise(order):
        if logs[one].form.name != logs[other].form.name:
            raise DataError(f"{one} is a log of {logs[one].form.name}, and {other} of {logs[other].form.name}: name logs of one training")  # fmt: skip
        if is_dated and spans[one][-1] > spans[other][0]:
            raise DataError(f"{one} and {other} are of the same time: name one of them, as each start of a training has one log")  # fmt: skip
    first, *others = (logs[path] for path in order)
    for log in others:
        first.events += [Event("start"), *log.events]
        first.resolution_s = max(first.resolution_s, log.resolution_s)
        first.interval = log.interval or first.interval
        first.multiple_of = log.multiple_of or first.multiple_of
        first.is_async = log.is_async or first.is_async
        first.planned = log.planned or first.planned
        first.step_s = log.step_s or first.step_s
    return order, first


def _dates(log: Log) -> tuple[float, ...]:
    """Those of the first and of the last step. Empty where it has none."""
    steps = (event.at_s or 0.0 for event in log.events if event.kind == "step")
    dates = [at_s for at_s in steps if at_s > DATED_S]
    return (min(dates), max(dates)) if dates else ()


def _first_step(log: Log) -> int:
    return next(event.step or 0 for event in log.events if event.kind == "step")
