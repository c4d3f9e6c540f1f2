"""Logs that are no lines of text: `trainer_state.json` of Hugging Face's Trainer, and the CSV files of Lightning's CSVLogger."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.events import LARGEST, Event, Log, time_of
from ckptbench.decide.training_log.forms import Form

STATE = Form(
    name="a state of Hugging Face's Trainer",
    lines=(),
    setting=("Transformers", "save_steps={steps}"),
    aside="Its step times include all saves of the run, and are too short if it was resumed",
)
METRICS = Form(name="a CSV file (Lightning's CSVLogger)", lines=(), from_zero=True, setting=("Lightning", "ModelCheckpoint(every_n_train_steps={steps})"))  # fmt: skip
TIMES = re.compile(r"(.*-)?(train/)?(time|timestamp|elapsed)|created_at")
"""Columns that say when: `train/time` is of Lightning's ThroughputMonitor, which leaves out validation. A prefix of the logger ends in a dash."""


def trainer_state(content: bytes, where: str) -> Log | None:
    """None where it is none. Step times are of the whole run, from `train_runtime`, which stands in it once the training has ended.

    Raises DataError where it is torn.
    """
    if not content.lstrip().startswith(b"{") or b'"log_history"' not in content:
        return None
    try:
        state = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: cannot be read as trainer_state.json: {error}; use that of another checkpoint"
        ) from None
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        return None
    history = [entry for entry in state["log_history"] if isinstance(entry, dict)]
    steps = sorted({int(each) for entry in history if (each := _number(entry.get("step")))})
    log = Log(STATE, [Event("step", step) for step in steps])
    last = _number(state.get("global_step")) or 0
    every = _number(state.get("save_steps")) or 0
    if every >= 1 and (every > last or last % every == 0):  # else another strategy saved the file
        log.interval = int(every)
    log.multiple_of = int(_number(state.get("eval_steps")) or 0) or None
    log.step_s = _of_run(history)
    log.planned = int(_number(state.get("max_steps")) or 0) or None
    return log


def _of_run(history: Iterable[dict[str, Any]]) -> float | None:
    """Seconds a step, without its evaluations."""
    step_s, aside_s = 0.0, 0.0
    for entry in history:
        aside_s += _number(entry.get("eval_runtime")) or 0.0
        runtime, step = _number(entry.get("train_runtime")), _number(entry.get("step"))
        if runtime and step:
            step_s = (runtime - aside_s) / step
    return step_s if step_s > 0 else None


def metrics(lines: Iterable[str]) -> Log | None:
    """None where the first line names no column `step`. A row that is torn tells nothing."""
    rows = csv.DictReader(lines)
    log = Log(METRICS)
    try:
        names = rows.fieldnames or []
        if len(names) < 2 or "step" not in names:
            return None
        times = [name for name in names if TIMES.fullmatch(name)]
        for row in rows:
            if (step := _number(row["step"])) is not None:
                at = next(filter(None, (row[name] for name in times)), "")
                log.events.append(Event("step", int(step) + 1, time_of(at, log)))
    except csv.Error:
        return None
    timed = [event for event in log.events if event.at_s is not None]
    log.events = timed or log.events  # rows of validation have no time
    return log


def _number(value: object) -> float | None:
    """A finite number from 0, or None."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 <= number <= LARGEST else None
