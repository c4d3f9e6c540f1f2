"""The explicit way in, for any loop in any framework, and for notebooks.

    with session() as s:
        for batch in batches:
            train(batch)
            s.step()
            if due:
                with s.checkpoint(path):
                    write(path)

Where a write goes on after the block, `s.durable()` says when it has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

from ckptbench_probe.harmless import harmless, say
from ckptbench_probe.process import PROCESS
from ckptbench_probe.saves import Save
from ckptbench_probe.variables import CHECK, FOLDER

DEFAULT_FOLDER = "ckptbench-probe"


class Session:
    """Counts the steps and checkpoints that the program names. While it is open, hooks count no steps."""

    def __init__(self) -> None:
        self._open: list[Save] = []
        self._says_durable = False
        self._stepped = _told_of_steps()

    def step(self, state: Any = None, update: int | None = None) -> None:
        """The model has been updated. Only `ckptbench-probe check resume` reads the arguments.

        `state`: all arrays that training needs to go on, in dicts and lists. `update`: the number of this update, across restarts.
        """
        harmless(PROCESS.updates.tick)()
        if self._stepped is not None:
            harmless(self._stepped)(state, update)

    @contextmanager
    def checkpoint(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """What training waits for. `path`: the file or folder that is written."""
        save = PROCESS.saves.begin("session", os.fspath(path))
        try:
            yield
        except BaseException:
            PROCESS.saves.end(save, failed=True)
            raise
        PROCESS.saves.end(save)
        if save is not None:
            PROCESS.saves.written(save)
            self._open.append(save)

    def captured(self) -> None:
        """The newest checkpoint no longer needs the training's own memory."""
        PROCESS.saves.captured(PROCESS.saves.outermost or (self._open[-1] if self._open else None))

    def durable(self) -> None:
        """The oldest checkpoint that this was not yet said of is finished, as far as the program knows."""
        if not self._open:
            say("durable() was called more often than checkpoint(): this call is ignored")
            return
        self._says_durable = True
        PROCESS.saves.finished(self._open.pop(0))

    def close(self) -> None:
        """Checkpoints were finished when their block ended, unless the program says when: then the last ones are still under way."""
        if self._says_durable:
            return
        for save in self._open:
            PROCESS.saves.finished(save, save.ended_ns)
        self._open.clear()


def _told_of_steps() -> Callable[[Any, int | None], None] | None:
    if os.environ.get(CHECK) != "resume":
        return None
    from ckptbench_probe.check.recording import stepped

    return stepped


@contextmanager
def session(folder: str | os.PathLike[str] | None = None) -> Iterator[Session]:
    """Under `ckptbench-probe run`, the launcher says where the events go. Else they go to `folder`, and the summary is told at the end."""
    launched = FOLDER in os.environ
    target = Path(os.environ.get(FOLDER) or folder or DEFAULT_FOLDER).resolve()
    PROCESS.trace.use(str(target))
    PROCESS.updates.by_session = True
    opened = Session()
    try:
        yield opened
    finally:
        opened.close()
        PROCESS.updates.write()
        PROCESS.updates.by_session = False
        if not launched:
            _tell(target)


def _tell(folder: Path) -> None:
    from ckptbench_probe.ending import summarize

    summarize(folder, run=PROCESS.trace.run)
