"""In the processes of a training: have its state recorded around each update, whatever framework it uses."""

from __future__ import annotations

import functools
import os
import re
import threading
from typing import Any, Callable

from ckptbench_probe.check.optimizers import SEEN, around_steps
from ckptbench_probe.check.recorder import RECORDER, SAVED, Now, own_rank
from ckptbench_probe.check.state import digest
from ckptbench_probe.check.trees import leaves
from ckptbench_probe.engines.wrapping import argument, path_of
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS


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
        note(args, kwargs)
        return original(*args, **kwargs)

    @harmless
    def note(args: Any, kwargs: Any) -> None:
        path = path_of(argument(args, kwargs, 1, "f"))
        if path is not None and threading.get_ident() == PROCESS.updates.thread:
            _write_saved(os.path.basename(path), argument(args, kwargs, 0, "obj"))

    return save


def _write_saved(name: str, content: Any) -> None:
    """Numbers in the name of a file may be those of an update or of a process. Tensors of whole numbers may be random states, which are compared by themselves."""
    file = re.sub(r"\d+", "#", name)
    found = {
        f"{file}: {leaf}": digest(value)
        for leaf, value in leaves(content)
        if hasattr(value, "is_floating_point") and value.is_floating_point()
    }
    PROCESS.trace.write(SAVED, update=PROCESS.updates.done, rank=own_rank(), tensors=found)


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
