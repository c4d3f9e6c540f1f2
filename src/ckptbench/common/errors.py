"""The exceptions of the study. Every message names the problem, its place and the remedy."""

import os
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class CkptbenchError(Exception):
    """Base of every error that a user of the study is expected to read."""


class ConfigError(CkptbenchError):
    """A value in the config file is not allowed."""


class DataError(CkptbenchError):
    """A dataset or a log of failures is missing, incomplete or differs from its description."""


class CheckpointError(CkptbenchError):
    """A checkpoint cannot be written or read."""


class LaunchError(CkptbenchError):
    """A run cannot be started, or one of its ranks died."""


class RunFolderError(CkptbenchError):
    """A run folder is half-written or corrupt, or its run has not ended."""


class EnvironmentSetupError(CkptbenchError):
    """A framework's environment cannot be made."""


class RunStopped(CkptbenchError):  # noqa: N818 (nothing went wrong)
    """A run stopped because it was asked to. This is not a failure."""

    def __init__(self, signal: str, steps_done: int | None) -> None:
        self.steps_done = steps_done
        where = f"with a checkpoint after step {steps_done}"
        if not steps_done:
            where = "while its ranks came up" if steps_done is None else "before its training began"
        super().__init__(
            f"stopped {where}, by {signal}; if its scheduler requeues it, or with resume: true, the run continues from there"
        )


def all_of(checks: Iterable[Callable[[], T]]) -> list[T]:
    """What each of these returns. Raises one error with the messages of all that fail, of the type of the first."""
    done: list[T] = []
    failed: list[CkptbenchError] = []
    for check in checks:
        try:
            done.append(check())
        except CkptbenchError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise type(failed[0])("\n".join(dict.fromkeys(map(str, failed))))
    return done


def for_reader(words: str) -> str:
    """As standard error shows them: wrapped to the width of a terminal, and as they are in a file, where a log is searched line by line."""
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):  # it is no terminal
        return words
    lines = words.splitlines()
    return "\n".join(textwrap.fill(line, width or 80, subsequent_indent="    " if line.startswith(" ") else "  ", break_long_words=False, break_on_hyphens=False) for line in lines)  # fmt: skip
