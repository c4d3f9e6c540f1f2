"""The file of one failure rate: a published one, the user's own number, or the user's own log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator

from ckptbench.decide.failure_log import COLUMN, MOST_FAILURES, read_gaps
from ckptbench.decide.moments import Moment, moment
from ckptbench.errors import ConfigError
from ckptbench.matrix.shown import show
from ckptbench.settings.section import Section, checked
from ckptbench.settings.sources import ConfigFile, FieldError, Sources, Words
from ckptbench.settings.values import LARGEST_NUMBER, Flag, Number, PathOrNull, whole

LARGEST_HOURS = 10**12
REFERENCE = re.compile(r"(arXiv:\d{4}\.\d{4,5}|doi:10\.\S+|https?://\S+)")
WAYS: tuple[tuple[set[str], set[str]], ...] = (
    ({"failures", "days", "gpus"}, set()),
    ({"mean_hours", "gpus"}, set()),
    ({"mean_gpu_hours"}, {"gpus"}),
    ({"log", "gpus", "from", "to"}, {"column"}),
)
"""The ways to give a rate: the fields that each needs, and those that it may have."""
NO_FILE = "no file *.yaml is there: name a folder like config/failures"
NUMBERS = set[str]().union(*(needed | allowed for needed, allowed in WAYS))
WAYS_HELP = "give failures, days and gpus; or mean_hours and gpus; or mean_gpu_hours; or log, gpus, from and to"


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("use a text")
    return " ".join(value.split())


def _reference(value: object) -> str:
    if not isinstance(value, str) or not REFERENCE.fullmatch(value):
        raise ValueError('use a text as in "arXiv:2407.21783", "doi:10.1109/..." or "https://..."')
    return value


def _moment(value: object) -> Moment | None:
    return None if value is None else moment(value)


Text = Annotated[str, BeforeValidator(_text)]
MomentOrNull = Annotated[Moment | None, PlainValidator(_moment)]
Hours = Annotated[float | None, Number(above=0, maximum=LARGEST_HOURS, or_null=True)]


class Publication(Section):
    """Where a rate was published."""

    authors: Text
    year: Annotated[int, whole(1950, 2100)]
    title: Text
    reference: Annotated[str, BeforeValidator(_reference)] = Field(
        description="arXiv:, doi:, or an address."
    )

    @property
    def short(self) -> str:
        return f"{self.authors} {self.year}, {self.reference}"


class FailureFile(Section):
    """What the file says: nothing in it is computed."""

    title: Text = Field(description="What readers of tables and figures see.")
    counts: Text = Field(description="What counts as a failure.")
    source: Publication | None = Field(default=None, description="None for one's own rate.")
    read_in: Text | None = Field(default=None, description="Where the numbers were read.")
    note: Text | None = None
    projected: Flag = Field(default=False, description="Computed by the source, not observed.")
    approximate: Flag = Field(
        default=False, description="The source estimates the numbers, or says `at least`."
    )
    gpus: Annotated[int | None, whole(1, LARGEST_NUMBER, or_null=True)] = None
    failures: Annotated[int | None, whole(1, MOST_FAILURES, or_null=True)] = None
    days: Hours = None
    mean_hours: Hours = Field(default=None, description="Of all `gpus` together.")
    mean_gpu_hours: Hours = None
    log: PathOrNull = None
    column: Text = COLUMN
    begin: MomentOrNull = Field(default=None, alias="from")
    end: MomentOrNull = Field(default=None, alias="to")


def read_failure_file(path: Path) -> FailureFile:
    """Raises ConfigError with the file, the field and what to do."""
    written = ConfigFile.read(path)
    file = checked(FailureFile, Sources(written.content, [written]))
    try:
        _check_together(
            file, {name for name, value in written.content.items() if value is not None}
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return file


def _check_together(file: FailureFile, given: set[str]) -> None:
    own = given & NUMBERS
    if not any(needed <= own <= needed | allowed for needed, allowed in WAYS):
        raise ConfigError(
            f"the rate is given by {', '.join(sorted(own)) or 'nothing'}: {WAYS_HELP}"
        )
    begin, end = file.begin, file.end
    if begin is None or end is None:
        return
    remedy = ""
    if begin.clock != end.clock:
        remedy = f"it is {end.clock}, but `from` is {begin.clock}: write both in the same way"
    elif end.seconds <= begin.seconds:
        remedy = f"it must come after `from`, which is {begin.written}"
    if remedy:
        raise FieldError(("to",), remedy, Words(end.written))


def read_failure_files(folder: Path, chosen: str) -> dict[Path, FailureFile]:
    """All files `*.yaml` of the folder, by path.

    Raises ConfigError where the folder has none, where none has the name `chosen`, or where one is wrong, and DataError where the log
    that one names is missing or wrong.
    """
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise ConfigError(f"decision.rates is {show(str(folder))}: {NO_FILE}")
    names = [path.stem for path in paths]
    if chosen not in names:
        raise ConfigError(
            f"decision.rate is {show(chosen)}: {folder} has no such file; use one of {', '.join(names)}"
        )
    files = {path: read_failure_file(path) for path in paths}
    for path, file in files.items():
        if file.log is not None and file.begin is not None and file.end is not None:
            read_gaps(path.parent / file.log, file.column, file.begin, file.end)
    return files
