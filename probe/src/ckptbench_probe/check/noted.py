"""What each save of a training is given, and which random states it restores, for `check resume`."""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from collections.abc import Iterable
from typing import Any, Callable

from ckptbench_probe.check import readers
from ckptbench_probe.check.memory import Memory
from ckptbench_probe.check.optimizers import SEEN
from ckptbench_probe.check.recorder import RECORDER, RESTORED, SAVED, own_rank
from ckptbench_probe.check.state import digest, random_states
from ckptbench_probe.check.trees import leaves
from ckptbench_probe.engines.wrapping import argument, path_of
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS

Call = Callable[..., Any]
Content = Callable[[Any, Any], "Iterable[tuple[Any, Any]]"]
RANDOM_TYPES = ("torch.uint8", "uint8", "uint32")
"""Of tensors that may be random states, which are compared by themselves."""
OWN_FOLDER = "checkpoints-"
"""Begin of the folder's name that this check gives to a run."""
OF_CHANCE = re.compile(r"\d+|(?<=^tmp)\w{8}$")
"""Numbers in a name may be those of an update or of a process; the end of a temporary one is of chance."""
DCP_FILE = ".distcp"
_LOCAL = threading.local()


def noted(original: Call, path: Callable[[Any, Any], str | None], content: Content) -> Call:
    """Around a call that writes `content` to a path. What it calls to write is part of it."""

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        target = harmless(path)(args, kwargs)
        if target is None or getattr(_LOCAL, "inside", False):
            return original(*args, **kwargs)
        harmless(note)(target, lambda: content(args, kwargs))
        _LOCAL.inside = True
        try:
            return original(*args, **kwargs)
        finally:
            _LOCAL.inside = False

    return save


def note(path: str, content: Callable[[], Iterable[tuple[Any, Any]]]) -> None:
    """A program saves what it needs to go on, also what no optimizer shows."""
    if path.endswith(DCP_FILE):
        return
    file = _file(os.path.abspath(path))
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
        path=os.path.abspath(path),
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


def _path(place: int, name: str) -> Callable[[Any, Any], str | None]:
    return lambda args, kwargs: path_of(argument(args, kwargs, place, name))


def _given(place: int, name: str) -> Content:
    return lambda args, kwargs: leaves(readers.content(argument(args, kwargs, place, name)))


def torch_save(module: Any) -> None:
    module.save = noted(module.save, _path(1, "f"), _given(0, "obj"))
    formats()


def safetensors(module: Any) -> None:
    module.save_file = noted(module.save_file, _path(1, "filename"), _given(0, "tensors"))


def lightning(module: Any) -> None:
    engine = module.TorchCheckpointIO
    engine.save_checkpoint = noted(
        engine.save_checkpoint, _path(2, "path"), _given(1, "checkpoint")
    )


def keras(module: Any) -> None:
    for name in ("save", "save_weights"):
        own = noted(getattr(module.Model, name), _path(1, "filepath"), _variables)
        setattr(module.Model, name, own)


def _variables(args: Any, _: Any) -> Iterable[tuple[Any, Any]]:
    return ((variable.path, variable.value) for variable in args[0].variables)


def dcp(module: Any) -> None:
    """Objects make their state when they are asked for it. `async_save` calls `save` in another thread, with a copy."""
    make = module._stateful_to_state_dict

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        state, path = make(*args, **kwargs), getattr(_LOCAL, "path", None)
        if path is not None:
            harmless(note)(path, lambda: leaves(state))
        return state

    module._stateful_to_state_dict = made
    for name in ("save", "async_save"):
        setattr(module, name, _dcp(getattr(module, name)))


def _dcp(original: Call) -> Call:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        if RECORDER.thread not in (None, threading.get_ident()):
            return original(*args, **kwargs)
        _LOCAL.path, _LOCAL.inside = harmless(_target)(kwargs), True
        try:
            return original(*args, **kwargs)
        finally:
            _LOCAL.path, _LOCAL.inside = None, False

    return save


def _target(kwargs: Any) -> str | None:
    found = kwargs.get("checkpoint_id") or getattr(kwargs.get("storage_writer"), "path", None)
    return None if found is None else str(found)


def formats() -> None:
    """Of libraries that are no engine of checkpoints. Their functions are wrapped where a program looks them up by their module."""
    pickle, numpy = (sys.modules.get(name) for name in ("pickle", "numpy"))
    if pickle is not None:
        _wrap(pickle, "dump", lambda save: noted(save, _path(1, "file"), _given(0, "obj")))
    if numpy is not None:
        _wrap(numpy, "save", lambda save: noted(save, _path(0, "file"), _given(1, "arr")))
        for name in ("savez", "savez_compressed"):
            _wrap(numpy, name, lambda save: noted(save, _path(0, "file"), _arrays))


def _wrap(module: Any, name: str, wrapped: Callable[[Call], Call]) -> None:
    original = getattr(module, name, None)
    if original is not None and not hasattr(original, "__wrapped_by_check__"):
        own = wrapped(original)
        own.__wrapped_by_check__ = True  # type: ignore[attr-defined]
        setattr(module, name, own)


def _arrays(args: Any, kwargs: Any) -> Iterable[tuple[Any, Any]]:
    named = {name: value for name, value in kwargs.items() if name != "file"}
    return leaves({**{f"arr_{n}": one for n, one in enumerate(args[1:])}, **named})


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
        own = sys.modules.get(module)
        if own is not None:
            _wrap(own, name, functools.partial(_restoring, state))


def _restoring(state: str, original: Call) -> Call:
    @functools.wraps(original)
    def restore(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        harmless(_restored)(state)
        return result

    return restore


def _restored(state: str) -> None:
    """Before the first update: `torch.random.fork_rng` and checkpointing of activations set states as well."""
    if RECORDER.made:
        return
    for name, found in random_states().items():
        if name.partition(":")[0] == state:  # of each GPU, as `cuda:0`
            PROCESS.trace.queue(RESTORED, name=name, digest=found, rank=own_rank())
