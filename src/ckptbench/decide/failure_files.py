"""Files on failures: read, checked, and with what was counted in the logs that they name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ckptbench.common.errors import ConfigError, DataError, all_of
from ckptbench.config.reading import ConfigFiles, FieldError
from ckptbench.config.section import checked
from ckptbench.decide.exposure import TIMEOUT, FailureCount
from ckptbench.decide.failure_file import NUMBERS, WAYS, WAYS_HELP, FailureFile
from ckptbench.decide.units import SECONDS_PER_MINUTE
from ckptbench.matrix.shown import show


def read_failure_file(
    path: Path, *, restart_s: float | None = None, with_limit: bool = False
) -> tuple[FailureFile, FailureCount | None]:
    """The file, and what was counted in the log that it names. `restart_s` is how long a restart takes where the file does not say it.

    `with_limit`: the ends at the time limit are counted by it.

    Raises ConfigError or DataError with the file, the field or line, and what to do.
    """
    written = ConfigFiles.of(path)
    file = checked(FailureFile, written)
    given = {name for name, value in written.content.items() if value is not None} & NUMBERS
    if not any(needed <= given <= needed | allowed for needed, allowed in WAYS):
        raise ConfigError(
            f"{path}: the rate is set by {', '.join(sorted(given)) or 'nothing'}: {WAYS_HELP}"
        )
    if file.begin is not None and file.end is not None and file.end <= file.begin:
        raise ConfigError(f"{path}: {FieldError(('to',), 'it must come after `from`', written.content['to'])}")  # fmt: skip
    if (log := file.log) is None:
        return file, None
    from ckptbench.decide.failure_log import count_failures  # imports pandas

    if with_limit and TIMEOUT in file.states:
        raise DataError(f"{path}: states has {TIMEOUT}, and --limit counts these ends: leave out one of them")  # fmt: skip
    if restart_s is not None and "restart_minutes" not in file.model_fields_set:
        file = file.model_copy(update={"restart_minutes": restart_s / SECONDS_PER_MINUTE})
    return file, count_failures(path.parent / log, file, with_limit=with_limit)


def read_failure_files(
    folder: Path, chosen: str | None = None
) -> dict[Path, tuple[FailureFile, FailureCount | None]]:
    """All files `*.yaml` of the folder, by path, each with what was counted in its log.

    Raises ConfigError or DataError where the folder has none, where none has the name `chosen`, or where some are wrong, or the logs
    that they name: with the faults of all.
    """
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise ConfigError(
            f"decision.rates is {show(str(folder))}: it has no file *.yaml: name a folder like config/failures"
        )
    names = [path.stem for path in paths]
    if chosen not in (None, *names):
        raise ConfigError(
            f"decision.rate is {show(chosen)}: {folder} has no file of this name: use {' or '.join(map(show, names))}"
        )
    return dict(zip(paths, all_of(partial(read_failure_file, path) for path in paths), strict=True))
