"""Keep the checkpoints of the runs apart: by the word {folder} in the command, or by moving a fixed folder aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = "ckptbench-check"
"""For what a check finds, where the user names none."""
PLACE = "{folder}"
_IN_STORE = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://\S*)\{folder\}")


class FolderError(Exception):
    """The message is one line for the user."""


def placed(command: list[str], folder: Path) -> list[str]:
    """Below a URL, as in `s3://bucket/run/{folder}`, each run has a prefix of its own."""
    return [_placed(word, folder) for word in command]


def _placed(word: str, folder: Path) -> str:
    own = f"{folder.parent.name}/{folder.name}" if _IN_STORE.search(word) else str(folder)
    return word.replace(PLACE, own)


def in_store(commands: list[list[str]]) -> str | None:
    """The URL below which runs have their checkpoints."""
    found = (_IN_STORE.search(word) for command in commands for word in command)
    return next((one[1].rstrip("/") for one in found if one), None)


def seen(commands: list[list[str]], folder: Path) -> str:
    """Where a run of this folder has its checkpoints."""
    found = (_IN_STORE.search(word) for command in commands for word in command)
    return next((_placed(one[0], folder) for one in found if one), str(folder))


def require_local(commands: list[list[str]], check: str) -> None:
    """Raises FolderError where checkpoints are in a store: what happens to files there is not seen."""
    if in_store(commands):
        raise FolderError(
            f"{check} looks at what a save does to files, which a store does not show: use a local folder, or check resume, which kills between two saves"
        )


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
