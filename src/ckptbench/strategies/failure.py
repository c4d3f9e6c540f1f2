"""The error of a failed save: the level and folder that it was to be written to, the cause, and the remedy that fits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ckptbench.errors import CheckpointError, LaunchError
from ckptbench.matrix.levels import SETTINGS, SHARED
from ckptbench.remedies import free, number_of, remedy


class AtLevel(Exception):  # noqa: N818 (no user reads it: it carries the level to where the message is made)
    """An error at one level of a save."""

    def __init__(self, level: str, cause: Exception) -> None:
        super().__init__(f"at the level {level}")
        self.level = level
        self.cause = cause


@contextmanager
def at_level(level: str) -> Iterator[None]:
    """Turn every error of the block into AtLevel. A LaunchError, which is another rank's, stays what it is."""
    try:
        yield
    except LaunchError:
        raise
    except Exception as error:
        raise AtLevel(level, error) from error


def level_and_cause(error: Exception) -> tuple[str | None, Exception]:
    """The level at which the error came, None if it is not known, and the error itself."""
    return (error.level, error.cause) if isinstance(error, AtLevel) else (None, error)


def failed_save(
    step: int, error: Exception, level: str | None, folders: Mapping[str, Path]
) -> CheckpointError:
    """The error of the checkpoint of `step` in one line. `folders` are those of the levels that the save goes to.

    Without a `level` it names them all, and as remedy that of the only one, if it is.
    """
    said = " ".join(f"{type(error).__name__}: {error}".split())
    where = " or ".join(str(folders[each]) for each in ([level] if level else folders))
    at = f", the level {level}," if level and len(folders) > 1 else ""
    known = level or (next(iter(folders)) if len(folders) == 1 else None)
    remedy = None if known is None else _remedy(error, known, folders[known])
    return CheckpointError(
        f"the checkpoint of step {step} cannot be written to {where}{at} ({said})"
        + (f"; {remedy}" if remedy else "")
    )


def _remedy(error: Exception, level: str, folder: Path) -> str | None:
    """What to do about it. None: the error says so itself, or nothing is known of it."""
    other = _another_place(level)
    number = number_of(error)
    if number is None:
        # Some libraries do not pass on the cause. The space that is free may tell.
        ours = isinstance(error, CheckpointError | MemoryError)
        return None if ours else f"{free(folder)}: {other}"
    return remedy(error, folder, other)


def _another_place(level: str) -> str:
    setting = SETTINGS[level]
    if level == SHARED:
        return f"set {setting} to another disk"
    return f"set {setting} to another folder, or set {level}: 0"
