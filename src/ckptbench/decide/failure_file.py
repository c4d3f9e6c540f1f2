"""The file of one failure rate: a published one, the user's own number, or the user's own log."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, PlainValidator

from ckptbench.config.section import Section
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
from ckptbench.decide.exposure import ENDS, FAILURE_STATES, RESTART_S

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
