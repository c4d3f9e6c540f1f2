"""Keep the checkpoints of the runs apart: by the word {folder} in the command, or by moving a fixed folder aside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = "ckptbench-check"
"""For what a check finds, where the user names none."""
PLACE = "{folder}"


class FolderError(Exception):
    """The message is one line for the user."""


def placed(command: list[str], folder: Path) -> list[str]:
    return [word.replace(PLACE, str(folder)) for word in command]


def require_apart(commands: list[list[str]], output: Path | None) -> None:
    """Raises FolderError where runs would share their checkpoints."""
    for command in commands:
        has = any(PLACE in word for word in command)
        if output is None and not has:
            raise FolderError(
                f"`{' '.join(command)}` has no {PLACE}, so the runs would find one another's checkpoints: write {PLACE} "
                f"where it names the folder for them, as in --out {PLACE}; if the folder is fixed in the program, name it by --output FOLDER"
            )
        if output is not None and has:
            raise FolderError(f"the command has {PLACE}, so leave out --output")


@contextmanager
def kept(output: Path | None, name: str) -> Iterator[None]:
    """What lies in `output` is out of the way of what is done here, and there again afterwards."""
    before = None if output is None else _aside(output, f"{name}-before")
    try:
        yield
    finally:
        if output is not None and before is not None:
            _aside(output, f"{name}-left")
            before.rename(output)


def set_aside(output: Path | None, name: str) -> None:
    """After a run, for the next one. Nothing is removed."""
    if output is not None:
        _aside(output, name)


def aside(output: Path, name: str) -> Path:
    return output.with_name(f"{output.name}-{name}")


def _aside(output: Path, name: str) -> Path | None:
    if not output.exists():
        return None
    target = aside(output, name)
    try:
        output.rename(target)
    except OSError as error:
        raise FolderError(
            f"{output} cannot be renamed to {target} ({error.strerror}): use {PLACE} in the command, or another folder"
        ) from error
    return target
