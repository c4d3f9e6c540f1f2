"""The fence around all that the probe does beside a training: what goes wrong there is said once on standard error, and the training goes on."""

from __future__ import annotations

import functools
import os
import signal
import sys
import textwrap
from types import CodeType
from typing import Any, Callable, TypeVar

Result = TypeVar("Result")
TOLD = "ckptbench-probe: "
"""Begin of each line of the probe."""
_SAID: set[str] = set()
TROUBLES: list[Callable[[str], Any]] = []
"""Called with the reason each time the fence catches an error: a check then cannot tell."""


def say(text: str) -> None:
    """One line on standard error, if there is one; on a terminal it is wrapped. A line that was said is not said again by this process."""
    if text in _SAID:
        return
    _SAID.add(text)
    if sys.stderr is None:
        return
    try:
        line = f"{TOLD}{text}"
        if os.isatty(2):
            line = textwrap.fill(line, os.get_terminal_size(2).columns or 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)  # fmt: skip
        os.write(2, f"{line}\n".encode(errors="replace"))
    except OSError:
        return  # standard error is closed: there is nowhere to say it


def harmless(function: Callable[..., Result]) -> Callable[..., Result | None]:
    """The same function; where it raises, the error is said, and the result is None. Only what is the training's own error goes on."""

    @functools.wraps(function)
    def tried(*args: Any, **kwargs: Any) -> Result | None:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if is_of_training(error):
                raise
            _report(f"{getattr(function, '__name__', function)}: {text_of(error)}")
            return None

    return tried


def is_of_training(error: BaseException) -> bool:
    """Ctrl-C, the end of the process, or what a signal handler of the program has raised while the probe was at work.

    Everything else is the probe's, or that of a library which it has called: some raise errors that are no `Exception`.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        return True
    handlers = _handlers()
    frame = error.__traceback__ if handlers else None
    while frame is not None:
        if frame.tb_frame.f_code in handlers:
            return True
        frame = frame.tb_next
    return False


def _handlers() -> set[CodeType]:
    found = (signal.getsignal(number) for number in range(1, signal.NSIG))
    codes = (getattr(getattr(one, "func", one), "__code__", None) for one in found)
    return {code for code in codes if code is not None}


def text_of(error: BaseException) -> str:
    """One line."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the error of a program may be an object that cannot say what it is
        said = ""
    return f"{type(error).__name__}: {said[:200]}" if said else type(error).__name__


def _report(reason: str) -> None:
    say(f"a part of a measurement is missing ({reason})")
    for report in TROUBLES:
        try:
            report(reason)
        except BaseException as error:
            if is_of_training(error):
                raise
            say(f"the trace lacks it ({text_of(error)})")


def say_lines(lines: list[str]) -> None:
    """On standard error, if there is one."""
    for line in lines:
        _SAID.discard(line)
        say(line)
