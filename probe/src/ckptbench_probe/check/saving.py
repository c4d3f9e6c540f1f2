"""Hooks of `ckptbench-probe check saves`: what each engine is given, and when it has written it."""

from __future__ import annotations

import functools
import io
import sys
from typing import Any, Callable

from ckptbench_probe.check import dcp, orbax, readers, threads
from ckptbench_probe.check.given import CHECKER
from ckptbench_probe.check.one_save import CannotTellError, Given, Reader, Values
from ckptbench_probe.check.optimizers import around_steps
from ckptbench_probe.engines.calls import Call, Content, Target, argument, first

READERS: dict[str, Reader] = {
    "torch.save": readers.torch_file,
    "safetensors": readers.safetensors_file,
    "lightning.io": readers.torch_file,
    "keras": readers.keras_file,
}
"""Of each kind of file that is whole when the call that writes it returns."""


def around(original: Call, kind: str, target: Target, content: Content) -> Call:
    def begin(args: Any, kwargs: Any) -> Given | None:
        path = target(args, kwargs)
        if path is None or CHECKER.inside is not None:
            return None
        given = CHECKER.begin(kind, path)
        CHECKER.take(given, lambda: values(args, kwargs))
        return given

    def values(args: Any, kwargs: Any) -> Values:
        if _place(_opened(kind, args, kwargs)):
            raise CannotTellError("its file has something else before it")
        return CHECKER.parts(readers.content(content(args, kwargs)))

    def ended(given: Given, _: Any, args: Any, kwargs: Any) -> None:
        """A file that the program has opened may hold back some of it until it is closed. One of Python is flushed, which changes nothing else."""
        file = _opened(kind, args, kwargs)
        if isinstance(file, (io.BufferedWriter, io.BufferedRandom)):
            file.flush()
        CHECKER.written(given, READERS[kind], file)

    return CHECKER.around(original, begin, ended)


def _opened(kind: str, args: Any, kwargs: Any) -> Any:
    """The file, if the program has opened it; None where the engine does."""
    file = argument(args, kwargs, 1, "f") if kind == "torch.save" else None
    return file if hasattr(file, "write") else None


def _place(file: Any) -> int:
    """Bytes that come before; 0 of a stream that has no places, as DCP's."""
    try:
        return int(file.tell()) if hasattr(file, "tell") else 0
    except Exception:  # noqa: BLE001 - a file may be an object of the program's own
        return 0


def _keras_steps(module: Any) -> None:
    """Between two batches, before the callbacks hear of it: what saves in a thread has a step to wait for."""
    callbacks = module.CallbackList
    callbacks.on_train_batch_end = first(
        callbacks.on_train_batch_end, lambda *_, **__: CHECKER.between_steps()
    )


def _torch_optimizer(_: Any) -> None:
    around_steps(CHECKER.before_step, CHECKER.after_step)
    module = sys.modules["torch"].nn.Module
    original = module.state_dict

    @functools.wraps(original)
    def state_dict(*args: Any, **kwargs: Any) -> Any:
        state = original(*args, **kwargs)
        if "destination" not in kwargs:  # else it is that of a part
            CHECKER.made(state)
        return state

    module.state_dict = state_dict


PATCHES: dict[str, Callable[[Any], None]] = {
    "torch.optim.optimizer": _torch_optimizer,
    "torch.serialization": lambda _: threads.patch(),
    "torch.distributed.checkpoint.state_dict_saver": dcp.patch,
    "keras.src.callbacks.callback_list": _keras_steps,
    "orbax.checkpoint.checkpoint_manager": orbax.patch,
}
"""Beside what `around` wraps."""
