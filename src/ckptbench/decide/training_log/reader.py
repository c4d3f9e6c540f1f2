"""Which form a log has, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.bars import only_bar_of_steps
from ckptbench.decide.training_log.events import Log, read_lines
from ckptbench.decide.training_log.files import metrics, trainer_state
from ckptbench.decide.training_log.forms import BAR, EXAMPLE, FORMS, own_form
from ckptbench.decide.training_log.lines import content_of, lines_of
from ckptbench.decide.training_log.suggestion import suggestion
from ckptbench.matrix.shown import show


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
            log.events = only_bar_of_steps(log.events) if form is BAR else log.events
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        if log.has_steps:
            return log
    lines = list(lines_of(content))
    none = f"{path}: none of its {len(lines):,} lines tells of a step"
    first = f"the first line is {show(next((line.strip() for line in lines if line.strip()), ''))}"
    looks = suggestion(lines)
    if patterns:
        raise DataError(f"{none}, by --log-pattern {' '.join(map(show, patterns))}: correct it; {looks or first}")  # fmt: skip
    known = ", ".join(form.name for form in forms)
    raise DataError(f"{none}, as they do of {known}: {looks or f'say how yours do, as in {EXAMPLE}; {first}'}")  # fmt: skip
