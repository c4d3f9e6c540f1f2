"""The files on failures: each has a published rate, the user's own number, or the user's own log."""

from __future__ import annotations

import math
import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, PlainValidator

from ckptbench.common.errors import ConfigError, all_of
from ckptbench.config.reading import ConfigFile, ConfigFiles, FieldError
from ckptbench.config.section import Section, checked
from ckptbench.config.values import (
    LARGEST_NUMBER,
    Flag,
    OneOf,
    PathOrNull,
    Text,
    number,
    whole,
)
from ckptbench.decide.clock import seconds_of
from ckptbench.decide.watched import ENDS, FAILURE_STATES, RESTART_S, Counted
from ckptbench.matrix.shown import show

if TYPE_CHECKING:
    import pandas as pd

LARGEST_HOURS = 10**12
NOW = "now"
MOST_FAILURES = 100_000
"""More than any machine has had."""
REFERENCE = re.compile(r"(arXiv:\d{4}\.\d{4,5}|doi:10\.\S+|https?://\S+)")
WAYS: tuple[tuple[set[str], set[str]], ...] = (
    ({"failures", "days", "gpus"}, set()),
    ({"mean_hours", "gpus"}, set()),
    ({"mean_gpu_hours"}, {"gpus"}),
    ({"log"}, {"gpus", "from", "to", "column", "states", "restart_minutes"}),
)
"""The ways to give a rate: the fields that each needs, and those that it may have."""
NUMBERS = set[str]().union(*(needed | allowed for needed, allowed in WAYS))
WAYS_HELP = "give failures, days and gpus; or mean_hours and gpus; or mean_gpu_hours; or log"


def _reference(value: object) -> str:
    if not isinstance(value, str) or not REFERENCE.fullmatch(value):
        raise ValueError('use a text as in "arXiv:2407.21783", "doi:10.1109/..." or "https://..."')
    return value


def _seconds(value: object) -> float | None:
    return None if value is None else time.time() if value == NOW else seconds_of(value)


TimeOrNull = Annotated[float | None, PlainValidator(_seconds)]
Hours = Annotated[float | None, number(above=0, maximum=LARGEST_HOURS)]


class Publication(Section):
    """Where a rate was published."""

    authors: Text
    year: Annotated[int, whole(1950, 2100)]
    title: Text
    reference: Annotated[str, BeforeValidator(_reference)]
    """arXiv:, doi:, or an address."""

    @property
    def short(self) -> str:
        return f"{self.authors} {self.year}, {self.reference}"


class FailureFile(Section):
    """What the file says: nothing in it is computed."""

    title: Text
    """What readers of tables and figures see."""
    counts: Text
    """What counts as a failure."""
    source: Publication | None = None
    """Where it was published: `authors`, `year`, `title`, `reference` (arXiv number, DOI or address). Without: it is your own."""
    read_in: Text | None = None
    """Where the numbers were read."""
    note: Text | None = None
    """What else a reader should know."""
    projected: Flag = False
    """Whether the source computed it for more GPUs than it had seen."""
    approximate: Flag = False
    """Whether the source estimates it, or says "at least"."""
    gpus: Annotated[int | None, whole(1, LARGEST_NUMBER)] = None
    """GPUs that were watched, not nodes."""
    failures: Annotated[int | None, whole(0, MOST_FAILURES)] = None
    """Failures counted; 0 gives a bound."""
    days: Hours = None
    """Days in which they were counted."""
    mean_hours: Hours = None
    """Mean time between two failures of all `gpus` together."""
    mean_gpu_hours: Hours = None
    """Mean GPU-hours between two failures."""
    log: PathOrNull = None
    """A log, from the folder of the file. The fields below are of logs."""
    column: Text | None = None
    """The column of the times: `time` of a list, `End` of a table."""
    states: Annotated[list[Annotated[str, OneOf(ENDS)]], Field(min_length=1)] = Field(
        default=[*FAILURE_STATES]
    )
    """Slurm's states of jobs that failed. Add `PREEMPTED` where training then starts again."""
    restart_minutes: Annotated[float, number(minimum=0, maximum=LARGEST_NUMBER)] = RESTART_S / 60
    """Failures within so long count as one: as long as a restart takes."""
    begin: TimeOrNull = Field(default=None, alias="from")
    """When the watching began. Without: a list's first failure, which is not counted."""
    end: TimeOrNull = Field(default=None, alias="to")
    """When it ended, or `now`. Without: a list's last failure."""

    @property
    def restart_s(self) -> float:
        return self.restart_minutes * 60

    def spans(self, at_s: pd.Series[float]) -> pd.Series[bool]:
        """Which of these times lie where GPUs were watched."""
        begin = -math.inf if self.begin is None else self.begin
        end = math.inf if self.end is None else self.end
        return (begin < at_s) & (at_s <= end)


def read_failure_file(path: Path) -> tuple[FailureFile, Counted | None]:
    """The file, and what was counted in the log that it names.

    Raises ConfigError or DataError with the file, the field or line, and what to do.
    """
    written = ConfigFile.read(path)
    file = checked(FailureFile, ConfigFiles(written.content, [written]))
    given = {name for name, value in written.content.items() if value is not None} & NUMBERS
    if not any(needed <= given <= needed | allowed for needed, allowed in WAYS):
        raise ConfigError(
            f"{path}: the rate is given by {', '.join(sorted(given)) or 'nothing'}: {WAYS_HELP}"
        )
    if file.begin is not None and file.end is not None and file.end <= file.begin:
        raise ConfigError(f"{path}: {FieldError(('to',), 'it must come after `from`', written.content['to'])}")  # fmt: skip
    if file.log is None:
        return file, None
    from ckptbench.decide.failure_log import count_failures  # imports pandas

    return file, count_failures(path.parent / file.log, file)


def read_failure_files(
    folder: Path, chosen: str | None = None
) -> dict[Path, tuple[FailureFile, Counted | None]]:
    """All files `*.yaml` of the folder, by path, each with what was counted in its log.

    Raises ConfigError or DataError where the folder has none, where none has the name `chosen`, or where some are wrong, or the logs
    that they name: with the faults of all.
    """
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise ConfigError(
            f"decision.rates is {show(str(folder))}: no file *.yaml is there: name a folder like config/failures"
        )
    names = [path.stem for path in paths]
    if chosen not in (None, *names):
        raise ConfigError(
            f"decision.rate is {show(chosen)}: {folder} has no file of this name: use {' or '.join(map(show, names))}"
        )
    return dict(zip(paths, all_of(partial(read_failure_file, path) for path in paths), strict=True))
