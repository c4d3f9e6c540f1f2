"""What each save of a training is given, and which random states it restores, for `check resume`."""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Callable

from ckptbench_probe.check import readers
from ckptbench_probe.check.memory import Memory
from ckptbench_probe.check.optimizers import SEEN
from ckptbench_probe.check.recorder import RECORDER, RESTORED, SAVED, own_rank
from ckptbench_probe.check.state import digest, random_states
from ckptbench_probe.check.trees import leaves
from ckptbench_probe.engines.calls import Call, Content, Target, content_at, path_at, then
from ckptbench_probe.engines.torch_dcp import target
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.storage import place

RANDOM_TYPES = ("torch.uint8", "uint8", "uint32")
"""Of tensors that may be random states, which are compared by themselves."""
OWN_FOLDER = "checkpoints-"
"""Begin of the folder's name that this check gives to a run."""
OF_CHANCE = re.compile(r"\d+|(?<=^tmp)\w{8}$")
"""Numbers in a name may be those of an update or of a process; the end of a temporary one is of chance."""
DCP_FILE = ".distcp"
_LOCAL = threading.local()


@contextmanager
def _inside(path: str | None = None) -> Iterator[None]:
    """What a save calls to write is part of it. `path`: of a save that asks for its state within."""
    _LOCAL.inside, _LOCAL.path = True, path
    try:
        yield
    finally:
        _LOCAL.inside, _LOCAL.path = False, None


def noted(original: Call, target: Target, content: Content) -> Call:
    """Around a call that writes `content` to a path."""

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        path = harmless(target)(args, kwargs)
        if path is None or getattr(_LOCAL, "inside", False):
            return original(*args, **kwargs)
        harmless(note)(path, lambda: leaves(readers.content(content(args, kwargs))))
        with _inside():
            return original(*args, **kwargs)

    return save


def note(path: str, content: Callable[[], Iterable[tuple[Any, Any]]]) -> None:
    """A program saves what it needs to go on, also what no optimizer shows."""
    if path.endswith(DCP_FILE):
        return
    path = place(path)
    file = _file(path)
    stepping = RECORDER.thread in (None, threading.get_ident())
    given = [(leaf, value) for leaf, value in content() if _is_array(value)]
    trained = None if stepping else Memory(SEEN)
    live = {leaf for leaf, value in given if trained and trained.holds(value)}
    found = {
        f"{file}: {leaf}": digest(value)
        for leaf, value in given
        if str(value.dtype) not in RANDOM_TYPES and leaf not in live
    }
    save = PROCESS.saves.outermost
    RECORDER.saved = True
    PROCESS.trace.write(
        SAVED,
        save=save.id if save else None,
        path=path,
        stepping=stepping,
        live=file if live else None,  # each update is compared in it by itself
        update=RECORDER.made,
        rank=own_rank(),
        tensors=found,
        random=random_states(),
    )


def _is_array(value: Any) -> bool:
    """Not a number of NumPy, as a time is."""
    return hasattr(value, "dtype") and (
        type(value).__module__ != "numpy" or (hasattr(value, "setflags") and value.ndim > 0)
    )


def _file(path: str) -> str:
    """Its name, with that of its folder unless the check has made it: two models of one checkpoint may have files of one name."""
    folder, name = os.path.split(path)
    parts = [os.path.basename(folder), name]
    return "/".join(
        OF_CHANCE.sub("#", part) for part in parts if part and not part.startswith(OWN_FOLDER)
    )


def dcp(module: Any) -> None:
    """Objects make their state when they are asked for it. `async_save` calls `save` in another thread, with a copy."""
    module._stateful_to_state_dict = then(module._stateful_to_state_dict, _made)
    for name in ("save", "async_save"):
        setattr(module, name, _dcp(getattr(module, name)))


def _made(state: Any) -> None:
    path = getattr(_LOCAL, "path", None)
    if path is not None:
        note(path, lambda: leaves(state))


def _dcp(original: Call) -> Call:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        if RECORDER.thread not in (None, threading.get_ident()):
            return original(*args, **kwargs)
        with _inside(harmless(target)(args, kwargs)):
            return original(*args, **kwargs)

    return save


def formats() -> None:
    """Of libraries that are no engine of checkpoints. Their functions are wrapped where a program looks them up by their module."""
    for module, name, path, content in (
        ("pickle", "dump", path_at(1, "file"), content_at(0, "obj")),
        ("numpy", "save", path_at(0, "file"), content_at(1, "arr")),
        ("numpy", "savez", path_at(0, "file"), _arrays),
        ("numpy", "savez_compressed", path_at(0, "file"), _arrays),
    ):
        _wrap(module, name, functools.partial(noted, target=path, content=content))


def _wrap(module: str, name: str, wrapped: Callable[[Call], Call]) -> None:
    """Once, as soon as it is imported."""
    original = getattr(sys.modules.get(module), name, None)
    if original is not None and not hasattr(original, "__wrapped_by_check__"):
        own = wrapped(original)
        own.__wrapped_by_check__ = True  # type: ignore[attr-defined]
        setattr(sys.modules[module], name, own)


def _arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    named = {name: value for name, value in kwargs.items() if name != "file"}
    return {**{f"arr_{n}": one for n, one in enumerate(args[1:])}, **named}


def random_restores() -> None:
    """Which random state was set tells whether it was restored and drawn from since, or not restored."""
    for module, name, state in (
        ("random", "setstate", "python"),
        ("numpy.random", "set_state", "numpy"),
        ("torch", "set_rng_state", "torch"),
        ("torch.random", "set_rng_state", "torch"),
        ("torch.cuda", "set_rng_state", "cuda"),
        ("torch.cuda.random", "set_rng_state", "cuda"),
    ):
        heard = functools.partial(_restored, state)
        _wrap(module, name, functools.partial(then, tell=heard))


def _restored(state: str, _: Any) -> None:
    """Before the first update: `torch.random.fork_rng` and checkpointing of activations set states as well."""
    if RECORDER.made:
        return
    for name, found in random_states().items():
        if name.partition(":")[0] == state:  # of each GPU, as `cuda:0`
            PROCESS.trace.queue(RESTORED, name=name, digest=found, rank=own_rank())
