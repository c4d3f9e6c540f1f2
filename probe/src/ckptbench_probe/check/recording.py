"""In the processes of a training: write the digests of its state after each update, and end the training by SIGKILL after the one that END_AT names.

The state before the first update of a process is written as well: it is what was restored.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, NoReturn

from ckptbench_probe.check.optimizers import SEEN, around_steps
from ckptbench_probe.check.processes import PAUSE_S, end_below
from ckptbench_probe.check.state import digest, leaves, random_states
from ckptbench_probe.engines.wrapping import argument, path_of
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.variables import END_AT, Seat, seat

BEGIN, UPDATED, SAVED = "state_at_begin", "state_after_update", "state_in_save"
ENDED = "ended-by-check"
"""File that rank 0 leaves when it ends itself; those of other ranks have their number behind it."""
WAITS_S = 60.0
"""For other ranks, at most."""


@dataclass(frozen=True)
class Now:
    """The state of a training at this moment, not copied."""

    tensors: Iterable[tuple[str, Any]]
    rates: list[float] = field(default_factory=list)
    step: int | None = None
    """Updates since the training began, across restarts, where the state tells."""
    random: dict[str, Any] = field(default_factory=dict)
    """Random states of the framework, beside those that every process has."""


class Recorder:
    def __init__(self) -> None:
        self._begun = False
        self._recorded = 0
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._begun, self._recorded = False, 0

    @harmless
    def begin(self, now: Now) -> None:
        if not self._begun:
            self._begun = True
            _write(BEGIN, 0, now)

    def updated(self, update: int, now: Now) -> None:
        """`update`: done by this process."""
        if update <= self._recorded:
            return
        self._begun = True
        self._recorded = update
        harmless(_write)(UPDATED, update, now)
        PROCESS.updates.write()
        if update >= int(os.environ.get(END_AT) or update + 1):
            _end(PROCESS.trace.folder)


def _write(event: str, update: int, now: Now) -> None:
    PROCESS.trace.write(
        event,
        update=update,
        rank=_rank(),
        step=now.step,
        tensors={name: digest(tensor) for name, tensor in now.tensors},
        random={
            **random_states(),
            **{name: digest(state) for name, state in now.random.items()},
        },
        rates=now.rates,
    )


def _rank() -> int:
    own = seat()
    return own.rank if own else 0


def _end(folder: str) -> NoReturn:
    """All ranks after the same update: rank 0 waits for the others, and they for it. The processes that this one has started end first: none may finish a save after the kill."""
    own = seat() or Seat(0, 1)
    mark = os.path.join(folder, ENDED)
    if own.rank == 0:
        _wait_for([f"{mark}-{rank}" for rank in range(1, own.ranks)])
        Path(mark).touch()
    else:
        Path(f"{mark}-{own.rank}").touch()
        _wait_for([mark])
    end_below(os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process outlives no SIGKILL")


def _wait_for(paths: list[str]) -> None:
    limit = time.monotonic() + WAITS_S
    while not all(map(os.path.exists, paths)) and time.monotonic() < limit:
        time.sleep(PAUSE_S)


RECORDER = Recorder()


def patch(name: str, module: Any) -> None:
    """Of each framework, what is called around an update."""
    if name == "torch.optim.optimizer":
        around_steps(_before_torch, _after_torch)
    elif name == "torch.serialization":
        module.save = _noted(module.save)
    elif name == "keras.src.callbacks.callback_list":
        from ckptbench_probe.check import recording_keras

        recording_keras.patch(module)
    elif name == "orbax.checkpoint.checkpoint_manager":
        from ckptbench_probe.check import recording_orbax

        recording_orbax.patch(module)


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    """A program saves what it needs to go on, also what no optimizer shows, as an average of the weights."""

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        path = harmless(path_of)(argument(args, kwargs, 1, "f"))
        if path is not None and threading.get_ident() == PROCESS.updates.thread:
            harmless(_write_saved)(os.path.basename(path), argument(args, kwargs, 0, "obj"))
        return original(*args, **kwargs)

    return save


def _write_saved(name: str, content: Any) -> None:
    """Numbers in the name of a file may be those of an update or of a process. Tensors of whole numbers may be random states, which are compared by themselves."""
    file = re.sub(r"\d+", "#", name)
    found = {
        f"{file}: {leaf}": digest(value)
        for leaf, value in leaves(content)
        if hasattr(value, "is_floating_point") and value.is_floating_point()
    }
    PROCESS.trace.write(SAVED, update=PROCESS.updates.done, rank=_rank(), tensors=found)


def _before_torch(optimizer: Any) -> None:
    """Not of a step that is no update, which only prepares an optimizer: its state is restored after it."""
    if not PROCESS.updates.by_session:
        RECORDER.begin(Now(SEEN.tensors(optimizer).items(), SEEN.rates(), SEEN.step()))


def _after_torch(_: Any) -> None:
    """A session says itself what an update is."""
    if not PROCESS.updates.by_session:
        RECORDER.updated(PROCESS.updates.done, _torch())


def _torch() -> Now:
    return Now(SEEN.tensors().items(), SEEN.rates(), SEEN.step())


def stepped(state: Any, update: int | None) -> None:
    """A session's step. `state`: what the program has named, else that of PyTorch's optimizers, if there are any."""
    if state is not None:
        from ckptbench_probe.check.trees import arrays

        RECORDER.updated(PROCESS.updates.done, Now(arrays(state), step=update))
    elif SEEN.alive():
        RECORDER.updated(PROCESS.updates.done, _torch())
