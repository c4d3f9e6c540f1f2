"""Logs that are no lines of text: `trainer_state.json` of Hugging Face's Trainer, and the CSV files of Lightning's CSVLogger."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from ckptbench.decide.training_log.events import COARSE_S, LARGEST, Event, Log
from ckptbench.decide.training_log.forms import Form
from ckptbench.decide.training_log.lines import seconds_of

STATE = Form(
    name="Hugging Face's trainer_state.json", lines=(), untold="the saves of the whole run"
)
METRICS = Form(name="a CSV file, as of Lightning's CSVLogger", lines=())
TIMES = re.compile(r"(.*-)?(train/)?(time|timestamp|elapsed)|created_at")
"""Columns that say when: `train/time` is of Lightning's ThroughputMonitor, which leaves out validation. A prefix of the logger ends in a dash."""
STEP_TIMES = re.compile(r".*step_timing in s|(.*-)?(train/)?step_(time|s)")
"""Columns that say how long a step takes: the first is NeMo's."""


def trainer_state(content: bytes) -> Log | None:
    """None where it is none. Step times are of the whole run, from `train_runtime`, which stands in it once the training has ended."""
    try:
        state = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        return None
    history = [entry for entry in state["log_history"] if isinstance(entry, dict)]
    steps = sorted({int(each) for entry in history if (each := _number(entry.get("step")))})
    log = Log(STATE, [Event("step", step) for step in steps])
    last = _number(state.get("global_step")) or 0
    every = _number(state.get("save_steps")) or 0
    if every >= 1 and (every > last or last % every == 0):  # else another strategy saved the file
        log.interval = int(every)
    log.step_s = _of_run(history)
    return log


def _of_run(history: Iterable[dict[str, Any]]) -> float | None:
    """Seconds a step in the last run of a training, without its evaluations."""
    first, aside_s, told = 0.0, 0.0, None
    for entry in history:
        aside_s += _number(entry.get("eval_runtime")) or 0.0
        runtime, step = _number(entry.get("train_runtime")), _number(entry.get("step"))
        if runtime and step and step > first:
            told = (runtime - aside_s) / (step - first)
            first, aside_s = step, 0.0
    return told if told and told > 0 else None


def metrics(lines: Iterable[str]) -> Log | None:
    """None where the first line names no column `step`. A row that has no time, or is torn, tells nothing."""
    rows = csv.reader(lines)
    try:
        names = [name.strip() for name in next(rows, [])]
        if len(names) < 2 or "step" not in names:
            return None
        log = Log(METRICS)
        for row in rows:
            told = dict(zip(names, row, strict=False))
            step = _number(told.get("step"))
            if step is not None:
                at_s = _first(TIMES, told, log)
                log.events.append(Event("step", int(step), at_s, _first(STEP_TIMES, told)))
    except csv.Error:
        return None
    if any(event.at_s is not None or event.seconds is not None for event in log.events):
        log.events = [e for e in log.events if e.at_s is not None or e.seconds is not None]
    return log


def _first(columns: re.Pattern[str], told: dict[str, str], log: Log | None = None) -> float | None:
    for name, text in told.items():
        if text and columns.fullmatch(name):
            try:
                seconds = seconds_of(text)
            except (ValueError, OverflowError):
                continue
            if log is not None and "." not in text:
                log.resolution_s = COARSE_S
            return seconds if abs(seconds) <= LARGEST else None
    return None


def _number(value: object) -> float | None:
    """A finite number from 0, or None."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 <= number <= LARGEST else None
