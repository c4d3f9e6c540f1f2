"""In the processes of a training: have its state recorded around each update, whatever framework it uses."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable

from ckptbench_probe.check import noted, recording_keras, recording_orbax, refusing_store
from ckptbench_probe.check.beside import Beside
from ckptbench_probe.check.killing import native
from ckptbench_probe.check.optimizers import SEEN, around_steps
from ckptbench_probe.check.recorder import RECORDER, Now
from ckptbench_probe.check.state import digest
from ckptbench_probe.check.trees import arrays, leaves
from ckptbench_probe.engines.calls import Call, Content, Target
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.variables import DATA

BESIDE = Beside(SEEN)


def around(original: Call, kind: str, target: Target, content: Content) -> Call:
    return noted.noted(native(original, kind, target), target, content)


def _torch_optimizer(_: Any) -> None:
    around_steps(_before_torch, _after_torch)
    noted.random_restores()
    if os.environ.get(DATA):
        _record_batches()


PATCHES: dict[str, Callable[[Any], None]] = {
    "torch.optim.optimizer": _torch_optimizer,
    "torch.serialization": lambda _: noted.formats(),
    "torch.distributed.checkpoint.state_dict_saver": noted.dcp,
    "fsspec.spec": refusing_store.patch_files,
    "fsspec.asyn": refusing_store.patch_calls,
    "s3torchconnector._s3client._s3client": refusing_store.patch_s3torchconnector,
    "keras.src.callbacks.callback_list": recording_keras.patch,
    "orbax.checkpoint.checkpoint_manager": recording_orbax.patch,
}
"""What is called around an update, of each framework, and saves otherwise than by what `around` wraps."""


def _record_batches() -> None:
    """Of the outermost module that is called in training, what it is given."""
    hooks = sys.modules["torch.nn.modules.module"]
    local = threading.local()

    @harmless
    def before(module: Any, args: Any) -> None:
        local.depth = getattr(local, "depth", 0) + 1
        if local.depth == 1 and module.training:
            kwargs = sys._getframe(1).f_locals.get("kwargs", {})  # PyTorch does not hand them on
            harmless(_batch)([args, kwargs])

    def after(module: Any, args: Any, result: Any) -> None:
        local.depth = max(0, getattr(local, "depth", 0) - 1)

    hooks.register_module_forward_pre_hook(before)
    hooks.register_module_forward_hook(after, always_call=True)


def _batch(given: Any) -> None:
    found = [digest(one) for _, one in leaves(given) if hasattr(one, "data_ptr")]
    if found:
        RECORDER.batches.append(digest(tuple(found)))


def _before_torch(optimizer: Any) -> None:
    """Not of a step that is no update, which only prepares an optimizer: its state is restored after it."""
    if PROCESS.updates.by_session:
        return
    harmless(noted.formats)()

    def begin() -> Now:
        return Now(SEEN.tensors(optimizer).items(), SEEN.rates(), SEEN.step())

    RECORDER.before(begin, _between, BESIDE.digests, id(optimizer))


def _between() -> Now:
    """Without buffers, which the model has filled before the update that is to come."""
    return Now(SEEN.tensors(buffers=False).items())


def _after_torch(optimizer: Any) -> None:
    """Of the optimizer whose steps are updates. A session says itself what an update is."""
    updates = PROCESS.updates
    if not updates.by_session and updates.first_optimizer() is optimizer:
        flag = getattr(optimizer, "found_inf", None)
        RECORDER.updated(_torch(left_out=flag is not None and bool(float(flag))))


def _torch(*, left_out: bool = False) -> Now:
    return Now(SEEN.tensors().items(), SEEN.rates(), SEEN.step(), left_out=left_out)


def stepped(state: Any, update: int | None) -> None:
    """A session's step. `state`: what the program has named, else that of PyTorch's optimizers, if there are any."""
    if state is not None:
        RECORDER.updated(Now(arrays(state), step=update))
    elif SEEN.alive():
        RECORDER.updated(_torch())
