"""Which form a log has, and what it says."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.bars import only_bar_of_steps, planned_of
from ckptbench.decide.training_log.events import Log, read_lines
from ckptbench.decide.training_log.files import metrics, trainer_state
from ckptbench.decide.training_log.forms import BAR, EXAMPLE, FORMS, own_form
from ckptbench.decide.training_log.lines import content_of, lines_of
from ckptbench.matrix.shown import show

COUNT = re.compile(r"(?<!\w)(\w*(?:step|iteration|iter|update|batch)(?:e?s)?)\b\W{1,12}(\d{1,12})(?!\d|[.:]\d)", re.IGNORECASE)  # fmt: skip
"""A name of a count, and the count."""
RISES = 2
"""A number that rises so often counts something."""


def read_log(path: Path, patterns: Sequence[str] = ()) -> Log:
    """The log, read by the user's expressions or else by the first form that finds steps in it.

    Raises ConfigError for wrong expressions, and DataError where the file cannot be read or has no steps.
    """
    forms = (own_form(patterns),) if patterns else FORMS
    content = content_of(path)
    if not content.strip():
        raise DataError(f"{path}: it is empty: name the log of a training")
    for log in () if patterns else (trainer_state(content, str(path)), metrics(lines_of(content))):
        if log is not None and log.has_steps:
            return log
    for form in forms:
        log = read_lines(lines_of(content), form, str(path))
        try:
            if form is BAR:
                log.events = only_bar_of_steps(log.events)
                log.planned = log.planned or planned_of(log.events)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        if log.has_steps:
            return log
    lines = [*lines_of(content)]
    if lines and re.match(r".*\bJobID\b.*\bState\b", lines[0]):
        raise DataError(f"{path}: this is a table of Slurm jobs: give it to --log")
    if content.lstrip().startswith(b"{") and b'"global_step"' in content:
        raise DataError(f"{path}: this is a trainer_state.json without steps in its log_history: name that of the last checkpoint, or what the training printed")  # fmt: skip
    none = f"{path}: none of its {len(lines):,} lines shows a step"
    first = f"the first line is {show(next((line.strip() for line in lines if line.strip()), ''))}"
    looks = _suggestion(lines)
    if patterns:
        raise DataError(f"{none}, by --log-pattern {' '.join(map(show, patterns))}: correct it; {looks or first}")  # fmt: skip
    known = ", ".join(form.name for form in forms)
    raise DataError(f"{none} in the form of {known}: {looks or f'describe yours, as in {EXAMPLE}; {first}'}")  # fmt: skip


def _suggestion(lines: Sequence[str]) -> str:
    """A line that looks like one of a step, and an expression of its number. Empty where none counts up."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for line in lines:
        for match in COUNT.finditer(line):
            found[match[1]].append((int(match[2]), line.strip()))
    for name, counts in sorted(found.items(), key=lambda one: -len(one[1])):
        if sum(after > before for (before, _), (after, _) in pairwise(counts)) >= RISES:
            return rf"{show(counts[1][1])} looks like the line of a step: try --log-pattern '\b{name}\W+(?P<step>\d+)', with (?P<step_s>...) or (?P<time>...) around its time if no date begins the line"
    return ""
