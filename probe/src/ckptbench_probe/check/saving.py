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
from ckptbench_probe.engines.wrapping import argument, path_of
from ckptbench_probe.harmless import harmless

Call = Callable[..., Any]


def patch(name: str, module: Any) -> None:
    hook = PATCHES.get(name)
    if hook is not None:
        hook(module)


def checked(
    original: Call,
    kind: str,
    *,
    target: Callable[[Any, Any], str | None],
    tensors: Callable[[Any, Any], Values],
    read: Reader,
    written: Callable[[Given, Any, Any], None] | None = None,
) -> Call:
    """Around a call that returns when the file is written."""

    @harmless
    def begin(args: Any, kwargs: Any) -> Given | None:
        path = target(args, kwargs)
        if path is None or CHECKER.inside is not None:
            return None
        given = CHECKER.begin(kind, path)
        CHECKER.take(given, lambda: tensors(args, kwargs))
        return given

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        given = begin(args, kwargs)
        if given is None:
            return original(*args, **kwargs)
        result = CHECKER.through(given, original, *args, **kwargs)
        ended(given, args, kwargs)
        return result

    @harmless
    def ended(given: Given, args: Any, kwargs: Any) -> None:
        written(given, args, kwargs) if written else CHECKER.written(given, read)

    return save


def _named(place: int, name: str) -> Callable[[Any, Any], Values]:
    return lambda args, kwargs: CHECKER.parts(readers.content(argument(args, kwargs, place, name)))


def _path(place: int, name: str) -> Callable[[Any, Any], str | None]:
    return lambda args, kwargs: path_of(argument(args, kwargs, place, name))


def _torch_save(module: Any) -> None:
    threads.patch()
    module.save = checked(
        module.save, "torch.save", target=_path(1, "f"), tensors=_behind_nothing, read=readers.torch_file,
        written=_to_file,
    )  # fmt: skip


def _behind_nothing(args: Any, kwargs: Any) -> Values:
    if _place(argument(args, kwargs, 1, "f")):
        raise CannotTellError("its file has something else before it")
    return _named(0, "obj")(args, kwargs)


def _to_file(given: Given, args: Any, kwargs: Any) -> None:
    """A file that the program has opened may hold back some of it until it is closed. One of Python is flushed, which changes nothing else."""
    file = argument(args, kwargs, 1, "f")
    is_object = hasattr(file, "write")
    if isinstance(file, (io.BufferedWriter, io.BufferedRandom)):
        file.flush()
    CHECKER.written(given, readers.torch_file, file if is_object else None)


def _place(file: Any) -> int:
    """Bytes that come before; 0 of a path, and of a stream that has no places, as DCP's."""
    try:
        return int(file.tell()) if hasattr(file, "tell") else 0
    except Exception:  # noqa: BLE001 - a file may be an object of the program's own
        return 0


def _safetensors(module: Any) -> None:
    module.save_file = checked(
        module.save_file, "safetensors", target=_path(1, "filename"), tensors=_named(0, "tensors"), read=readers.safetensors_file,
    )  # fmt: skip


def _lightning_io(module: Any) -> None:
    engine = module.TorchCheckpointIO
    engine.save_checkpoint = checked(
        engine.save_checkpoint, "lightning", target=_path(2, "path"), tensors=_named(1, "checkpoint"), read=readers.torch_file,
    )  # fmt: skip


def _keras_steps(module: Any) -> None:
    """Between two batches, before the callbacks hear of it: what saves in a thread has a step to wait for."""
    original = module.CallbackList.on_train_batch_end

    @functools.wraps(original)
    def on_train_batch_end(*args: Any, **kwargs: Any) -> Any:
        CHECKER.between_steps()
        return original(*args, **kwargs)

    module.CallbackList.on_train_batch_end = on_train_batch_end


def _keras(module: Any) -> None:
    for name, whole in (("save", True), ("save_weights", False)):
        method = checked(
            getattr(module.Model, name), "keras", target=_path(1, "filepath"),
            tensors=functools.partial(_variables, whole), read=readers.keras_file,
        )  # fmt: skip
        setattr(module.Model, name, method)


def _variables(whole: bool, args: Any, kwargs: Any) -> Values:
    """`save_weights` leaves the optimizer out."""
    model = args[0]
    optimizer = getattr(model, "optimizer", None) if whole else None
    for variable in [*model.variables, *getattr(optimizer, "variables", [])]:
        yield variable.path, variable


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
    "torch.serialization": _torch_save,
    "torch.distributed.checkpoint.state_dict_saver": dcp.patch,
    "safetensors.torch": _safetensors,
    "lightning.fabric.plugins.io.torch_io": _lightning_io,
    "lightning_fabric.plugins.io.torch_io": _lightning_io,
    "keras.src.callbacks.callback_list": _keras_steps,
    "keras.src.models.model": _keras,
    "orbax.checkpoint.checkpoint_manager": orbax.patch,
}
