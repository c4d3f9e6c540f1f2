"""The file of one failure rate: a published one, the user's own number, or the user's own log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainValidator

from ckptbench.decide.failure_log import COLUMN, MOST_FAILURES, read_gaps
from ckptbench.decide.moments import Moment, moment
from ckptbench.errors import ConfigError, all_of
from ckptbench.matrix.shown import show
from ckptbench.settings.section import Section, checked
from ckptbench.settings.sources import ConfigFile, FieldError, Sources, Words
from ckptbench.settings.text import Text, unseen_in
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


def _reference(value: object) -> str:
    if not isinstance(value, str) or not REFERENCE.fullmatch(value):
        raise ValueError('use a text as in "arXiv:2407.21783", "doi:10.1109/..." or "https://..."')
    return value


def _moment(value: object) -> Moment | None:
    return None if value is None else moment(value)


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
    given = {name for name, value in written.content.items() if value is not None}
    if faults := list(_faults(file, given)):
        raise ConfigError("\n".join(f"{path}: {fault}" for fault in faults))
    return file


def named_log(path: Path) -> tuple[Path, str, Moment, Moment] | None:
    """The log of a file, its column, and from when to when it was kept. None where the file does not say all of it.

    The file may be wrong elsewhere: the faults of its log are then told with its own.
    """
    try:
        content = ConfigFile.read(path).content
        begin, end = (_moment(content.get(name)) for name in ("from", "to"))
    except (ConfigError, ValueError):
        return None
    log, column = content.get("log"), content.get("column") or COLUMN
    if begin is None or end is None or _clash(begin, end):
        return None
    if not isinstance(log, str) or not isinstance(column, str):
        return None
    return (path.parent / log, column, begin, end)


def _faults(file: FailureFile, given: set[str]) -> Iterator[ConfigError]:
    """Fields that do not go together."""
    own = given & NUMBERS
    if not any(needed <= own <= needed | allowed for needed, allowed in WAYS):
        yield ConfigError(
            f"the rate is given by {', '.join(sorted(own)) or 'nothing'}: {WAYS_HELP}"
        )
    begin, end = file.begin, file.end
    if begin is None or end is None:
        return
    if remedy := _clash(begin, end):
        yield FieldError(("to",), remedy, Words(end.written))


def _clash(begin: Moment, end: Moment) -> str:
    """Why a log cannot be kept from `begin` to `end`, and what to do. Empty where it can."""
    if begin.clock != end.clock:
        return f"it is {end.clock}, but `from` is {begin.clock}: write both in the same way"
    if end.seconds <= begin.seconds:
        return f"it must come after `from`, which is {begin.written}"
    return ""


def read_failure_files(folder: Path, chosen: str) -> dict[Path, FailureFile]:
    """All files `*.yaml` of the folder, by path.

    Raises ConfigError where the folder has none, where none has the name `chosen`, or where some are wrong, or the logs that they
    name: with the faults of all.
    """
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise ConfigError(f"decision.rates is {show(str(folder))}: {NO_FILE}")
    names = [path.stem for path in paths]
    if unseen := next((name for name in names if unseen_in(name)), ""):
        raise ConfigError(
            f"{folder} has a file named {unseen!r}: no reader can see all of its characters. Rename it"
        )
    if chosen not in names:
        raise ConfigError(
            f"decision.rate is {show(chosen)}: {folder} has no file of this name: use {' or '.join(map(show, names))}"
        )
    return dict(zip(paths, all_of(partial(_read_with_log, path) for path in paths), strict=True))


def _read_with_log(path: Path) -> FailureFile:
    file = read_failure_file(path)
    if file.log is not None and file.begin is not None and file.end is not None:
        read_gaps(path.parent / file.log, file.column, file.begin, file.end)
    return file
