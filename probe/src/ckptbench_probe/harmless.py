"""What goes wrong in the probe is said once on standard error, and the training goes on."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, TypeVar

Result = TypeVar("Result")
TOLD = "ckptbench-probe: "
"""Begin of each line of the probe."""
_SAID: set[str] = set()


def say(text: str) -> None:
    """One line on standard error, if there is one. A line that was said is not said again by this process."""
    if text in _SAID:
        return
    _SAID.add(text)
    if sys.stderr is None:
        return
    try:
        os.write(2, f"{TOLD}{text}\n".encode(errors="replace"))
    except OSError:
        return  # standard error is closed: there is nowhere to say it


def harmless(function: Callable[..., Result]) -> Callable[..., Result | None]:
    """The same function; where it raises, the error is said, and the result is None."""

    @functools.wraps(function)
    def tried(*args: Any, **kwargs: Any) -> Result | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's training must go on
            say(
                f"a part of a measurement is missing ({function.__name__}: {type(error).__name__}: {error})"
            )
            return None

    return tried


def say_lines(lines: list[str]) -> None:
    """On standard error, if there is one."""
    for line in lines:
        _SAID.discard(line)
        say(line)
