"""The frame of every verb: its options and its log, and an error for the user in one line."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ckptbench.common.errors import CkptbenchError
from ckptbench.common.remedies import FULL, LEAST_BYTES, blame, in_one_line, number_of

log = logging.getLogger("ckptbench")


OPTIONS: Mapping[str, dict[str, Any]] = {
    "--tables": {"type": Path, "required": True, "help": "folder of the tables"},
    "--runs": {"type": Path, "required": True, "help": "folder of the run folders"},
    "--study": {"type": Path, "required": True, "help": "the record of the study: study.json"},
    "--cell": {"type": json.loads, "required": True, "help": "the cell, as JSON"},
    "--rates": {"type": Path, "required": True, "help": "folder of the failure rates"},
    "--choices": {"required": True, "help": "JSON object: what to decide for"},
    "--datasets": {"type": Path, "required": True, "help": "folder of the datasets"},
    "--numbers": {"type": Path, "help": "file with costs, instead of those of the tables"},
    "--answer": {"type": Path, "help": "text that the page begins with"},
    "--given": {"action": "store_true", "help": "the costs are a user's, of no study"},
    "--output": {"type": Path, "required": True, "help": "the file to write"},
    "--mark": {"type": Path, "help": "file that says of which config the tables are"},
    "--parent": {
        "type": int,
        "default": os.getppid(),
        "help": "id of the process that starts this one and waits for it; when it has ended, this one ends all "
        "that it has started. Default: the parent of this process",
    },
}
"""Options that mean the same in all verbs."""


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add these of OPTIONS."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name])


class LogFile(logging.FileHandler):
    """A log that may become unwritable: it says so once, and the terminal still gets every line."""

    def __init__(self, path: Path, *, append: bool) -> None:
        super().__init__(path, mode="a" if append else "w", encoding="utf-8")
        self._given_up = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._given_up:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's own name)
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._given_up = True
        _tell(f"the log {self.baseFilename} cannot be written: {blame(error, self.baseFilename)}")
        with suppress(OSError):  # what is left in its buffer
            self.close()


def run_script(work: Callable[[], object], log_path: Path | None, *, append: bool = False) -> int:
    """Call `work` and log to the terminal and to `log_path`.

    Returns the exit status, 1 after an error that a user can mend: a CkptbenchError, or one of the operating system. The
    log then ends with a line that says how.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if log_path is not None:
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            handlers.append(LogFile(log_path, append=append))
        except OSError as error:
            _tell(f"the log {log_path} cannot be written: {blame(error, log_path)}")
    logging.basicConfig(format="%(message)s", handlers=handlers)
    logging.getLogger("ckptbench").setLevel(logging.INFO)  # other libraries log warnings only
    try:
        work()
    except CkptbenchError as error:
        log.error("%s: %s", type(error).__name__, error)
        return 1
    except Exception as error:
        of_system = _of_system(error)
        told = of_system and in_one_line(of_system, *([log_path.parent] if log_path else []))
        if told is None:
            raise
        log.error("%s: %s", type(of_system).__name__, told)
        return 1
    return 0


def _of_system(error: BaseException) -> BaseException | None:
    """The error, or the one of a full disk that made a library fail in its turn. None: it is a fault of the code."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, MemoryError | OSError) and (each is error or number_of(each) in FULL):
            return each
        each = each.__cause__ or each.__context__
    return None


def end_where_full(folder: Path) -> None:
    """End this process with one line where nothing more can be written to the folder: no room, or no quota, is left."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(LEAST_BYTES))
            file.flush()
    except OSError as error:
        if error.errno in FULL:
            sys.exit(f"nothing can be written here: {blame(error, folder.absolute())}")


def _tell(words: str) -> None:
    with suppress(OSError):  # the terminal may be a file on the same disk
        print(words, file=sys.stderr, flush=True)
